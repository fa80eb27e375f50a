"""The pruned evaluation equals the evaluation of every id, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from outrider.sampling.gumbel_max import best_of_all, contenders
from outrider.sampling.noise import gumbel, noise_key, vocabulary_bits
from tests.outrider.sampling.reference import STEADY


def _every_id(row, temperature, key, width):
    scores = row.astype(np.float64) / temperature + gumbel(vocabulary_bits(key, row.size))
    ranked = np.argsort(-scores, kind="stable")
    return [int(token) for token in ranked[:width] if scores[token] > -np.inf]


def _finite_somewhere(row):
    return row.max() > -np.inf


ROWS = st.one_of(
    hnp.arrays(np.float32, st.integers(1, 300), elements=st.sampled_from([-np.inf, 0.0, 1.0, 30.0])),
    hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(-40, 40, width=32)),
    hnp.arrays(
        np.float32,
        st.integers(1, 60),
        elements=st.floats(float(np.finfo(np.float32).min), float(np.finfo(np.float32).max), width=32),
    ),
).filter(_finite_somewhere)


@settings(max_examples=300, **STEADY)
@given(ROWS, st.sampled_from([1e-5, 0.1, 0.7, 1.0, 2.0, 100.0]), st.integers(0, 2**64 - 1), st.integers(1, 9))
def test_pruned_equals_unpruned(row, temperature, key, width):
    assert best_of_all(row, temperature, key, width).ids.tolist() == _every_id(row, temperature, key, width)


def _wide_rows():
    draws = np.random.default_rng(3)
    size = 50_257
    # Rounded to bfloat16's 8 bits, as a model's logits often are: full of ties.
    coarse = (draws.normal(0, 3, size).astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    return {
        "flat": np.zeros(size),
        "normal": draws.normal(0, 3, size),
        "coarse": coarse,
        "even": draws.uniform(-12, 0, size),
        "peaked": np.where(np.arange(size) == 77, 40.0, draws.normal(0, 3, size)),
        "two levels": np.where(draws.random(size) < 0.5, 0.0, -11.0),
        "ramp": np.linspace(-40, 0, size),
        "masked": np.where(draws.random(size) < 0.999, -np.inf, draws.normal(0, 1, size)),
        "huge": draws.normal(0, 1e37, size),
        "steps of a quarter": np.full(size, 2.0**50),  # a score keeps no more of its noise
        "huge ties": np.where(np.arange(size) % 3 == 0, 1e30, -1e30),
    }


@pytest.mark.parametrize("name", _wide_rows())
@pytest.mark.parametrize("width", [1, 4])
def test_wide_rows_too(name, width):
    row = _wide_rows()[name].astype(np.float32)
    for position in range(12):
        key = noise_key(1, 0, "token", position)
        for temperature in (0.3, 1.0):
            chosen = best_of_all(row, temperature, key, width).ids.tolist()
            assert chosen == _every_id(row, temperature, key, width)


@pytest.mark.parametrize("name", ["flat", "normal", "coarse", "even", "peaked", "ramp"])
def test_few_ids_need_a_logarithm(name):
    row = _wide_rows()[name].astype(np.float32)
    for position in range(12):
        bits = vocabulary_bits(noise_key(1, 0, "token", position), row.size)
        assert contenders(row, 1.0, bits, 1).size < 500


def test_equal_scores_go_to_the_smaller_id():
    # So large that no noise moves the sum: every score ties.
    row = np.full(5000, 3e38, dtype=np.float32)
    assert best_of_all(row, 1.0, 99, 3).ids.tolist() == [0, 1, 2]
