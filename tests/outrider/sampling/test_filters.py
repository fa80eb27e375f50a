"""The kept set against its plain definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.sampling import SamplingParameters
from outrider.sampling.filters import Kept, keep_min_p, keep_top_p, scaled, top_k_ids
from outrider.sampling.processing import filtered
from tests.outrider.sampling import reference
from tests.outrider.sampling.reference import STEADY

LOGITS = st.one_of(
    st.lists(st.sampled_from([-math.inf, -2.0, 0.0, 1.0, 1.5]), min_size=1, max_size=40),
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=40),
).filter(lambda row: max(row) > -math.inf)


@settings(**STEADY)
@given(
    row=LOGITS,
    temperature=st.sampled_from([0.01, 0.7, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 39, 100]),
    top_p=st.sampled_from([1e-9, 0.113, 0.517, 0.931, 0.9999, 1.0]),
    min_p=st.sampled_from([0.0, 0.011, 0.3, 1.0]),
)
def test_kept_ids_follow_the_definition(row, temperature, top_k, top_p, min_p):
    parameters = SamplingParameters(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    array = np.array(row, dtype=np.float32)
    kept = filtered(array, parameters)
    expected = reference.kept(array.tolist(), parameters)
    assert kept.ids.tolist() == sorted(expected)
    assert kept.values.tolist() == [expected[token] for token in sorted(expected)]


def test_c22_top_k_keeps_exactly_k_and_prefers_the_smaller_id():
    row = np.array([2, 5, 2, 2, 9], dtype=np.float32)
    assert top_k_ids(row, 3).tolist() == [0, 1, 4]
    assert top_k_ids(row, 4).tolist() == [0, 1, 2, 4]


def test_c22_top_p_keeps_the_smallest_prefix_that_reaches_p():
    kept = Kept(np.arange(4), np.zeros(4))
    assert keep_top_p(kept, 0.5).ids.tolist() == [0, 1]
    assert keep_top_p(kept, 0.51).ids.tolist() == [0, 1, 2]
    assert keep_top_p(kept, 1e-12).ids.tolist() == [0]


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0, 8.0])
@pytest.mark.parametrize("top_p", [0.3, 0.95, 0.9999])
def test_top_p_on_a_wide_row_equals_the_whole_ranking(spread, top_p):
    values = np.random.default_rng(7).normal(0, spread, 60_000).astype(np.float32).astype(np.float64)
    kept = keep_top_p(Kept(np.arange(values.size), values), top_p)
    order = np.argsort(-values, kind="stable")
    sums = np.cumsum(np.exp(values[order] - values.max()))
    length = int((sums >= top_p * np.exp(values - values.max()).sum()).argmax()) + 1
    assert kept.ids.tolist() == sorted(order[:length].tolist())


def test_filters_act_one_after_the_other():
    # Top-k leaves two equal ids, so top-p of a half keeps one; on all four ids it would keep two.
    row = np.array([0, 0, 0, 0], dtype=np.float32)
    assert filtered(row, SamplingParameters(top_k=2, top_p=0.5)).ids.tolist() == [0]


def test_min_p_is_relative_to_the_best_id():
    kept = Kept(np.arange(3), np.log(np.array([1.0, 0.5, 0.05])))
    assert keep_min_p(kept, 0.1).ids.tolist() == [0, 1]


def test_temperature_makes_no_ties_and_no_overflow():
    close = np.array([1.0, np.nextafter(np.float32(1), np.float32(2))], dtype=np.float32)
    values = scaled(close, np.arange(2), 3.0).values
    assert values[0] < values[1]
    huge = scaled(np.array([3e38, -3e38], dtype=np.float32), np.arange(2), 1e-5)
    assert np.isfinite(huge.values).all()
    assert np.isfinite(huge.log_normaliser())
