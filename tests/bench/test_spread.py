import pytest

from bench.spread import percentile, spread


def test_of_few_values_the_extremes_are_told():
    found = spread([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high, found.num) == (2.0, 1.0, 3.0, 3)


def test_of_more_values_the_quartiles_are_told():
    found = spread([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (found.median, found.low, found.high) == (3.0, 2.0, 4.0)


def test_of_nothing_nothing_is_told():
    assert spread([]) is None
    assert percentile([], 0.5) is None


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0)])
def test_percentiles_lie_between_the_values(share, value):
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == value
