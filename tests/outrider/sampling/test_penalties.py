"""Masks, bias and penalties on single rows."""

from __future__ import annotations

import numpy as np

from outrider.sampling.penalties import (
    add_bias,
    mask,
    penalise_frequency,
    penalise_presence,
    penalise_repetition,
)


def _row(*values):
    return np.array(values, dtype=np.float32)


def _ids(*ids):
    return np.array(ids, dtype=np.int64)


def test_mask_takes_ids_out_and_ignores_those_beyond_the_row():
    row = _row(1, 2, 3)
    mask(row, {1, 7})
    assert row.tolist() == [1, -np.inf, 3]


def test_c19_a_bias_of_minus_100_is_a_ban():
    row = _row(1000, 2, 3)
    add_bias(row, ((0, -100.0), (2, 1.5), (9, 5.0)))
    assert row.tolist() == [-np.inf, 2, 4.5]


def test_repetition_divides_positive_and_multiplies_negative_logits():
    row = _row(3, -3, 0, 5, -np.inf)
    penalise_repetition(row, _ids(0, 1, 2, 4), 1.5)
    assert row.tolist() == [2, -4.5, 0, 5, -np.inf]


def test_presence_counts_once_and_frequency_each_time():
    row = _row(1, 1, 1)
    penalise_presence(row, _ids(0, 2), 0.5)
    penalise_frequency(row, _ids(0, 2), _ids(1, 4), 0.25)
    assert row.tolist() == [0.25, 1, -0.5]


def test_an_extreme_penalty_saturates_and_stays_finite():
    row = _row(3e38, -3e38, 0)
    penalise_repetition(row, _ids(0, 1, 2), 5e-324)
    assert np.isfinite(row).all()
    row = _row(3e38, -3e38)
    penalise_repetition(row, _ids(0, 1), 1e308)
    assert np.isfinite(row).all()
