import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.bars import bar, columns, shortened

SHARES = st.floats(min_value=-1, max_value=2)


@given(SHARES, st.integers(1, 40))
def test_a_bar_is_as_wide_as_told_and_shows_some_as_some(share, width):
    drawn = bar(share, width)
    assert len(drawn) == width
    assert ("█" in drawn) == (share > 0)


@given(st.lists(SHARES))
def test_there_is_one_column_a_share_and_more_is_higher(shares):
    drawn = columns(sorted(shares))
    assert list(drawn) == sorted(drawn)
    assert len(drawn) == len(shares)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (950, "950"), (1234, "1.23k"), (1234567, "1.23M"), (0.25, "0.25")]
)
def test_numbers_are_shortened(number, text):
    assert shortened(number) == text


@given(st.floats(min_value=0, max_value=1e14))
def test_a_shortened_number_is_near_it(number):
    units = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    text = shortened(number)
    value = float(text[:-1]) * units[text[-1]] if text[-1] in units else float(text)
    assert math.isclose(value, number, rel_tol=0.006)
