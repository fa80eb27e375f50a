"""The ranking order against a plain sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.sampling.ranking import best, best_set, floor_of_best, in_order
from tests.outrider.sampling.reference import STEADY


def _sorted(values):
    return sorted(range(len(values)), key=lambda index: (-float(values[index]), index))


@settings(**STEADY)
@given(st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 3.0]), max_size=60), st.integers(0, 70))
def test_best_is_the_head_of_the_sorted_ids(values, count):
    array = np.array(values, dtype=np.float32)
    assert in_order(array).tolist() == _sorted(values)
    assert best(array, count).tolist() == _sorted(values)[:count]
    assert best_set(array, count).tolist() == sorted(_sorted(values)[:count])


@pytest.mark.parametrize("count", [1, 5, 255, 257, 4096])
@pytest.mark.parametrize("num_levels", [1, 40, 10**6])
def test_a_wide_row_with_ties_ranks_alike(count, num_levels):
    values = np.random.default_rng(count).integers(0, num_levels, 20_011).astype(np.float32)
    assert best(values, count).tolist() == _sorted(values)[:count]
    assert (values >= floor_of_best(values, count)).sum() >= count


def test_unsigned_words_rank_too():
    words = np.array([0, 2**64 - 1, 5, 2**64 - 1], dtype=np.uint64)
    assert best(words, 3).tolist() == [1, 3, 2]
