"""Log-probabilities of the unprocessed logits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outrider.sampling import token_logprobs


def test_c23_logprobs_are_the_log_softmax():
    row = np.random.default_rng(0).normal(0, 3, 1000).astype(np.float32)
    exact = row.astype(np.longdouble)
    exact = exact - np.log(np.exp(exact).sum())
    found = token_logprobs(row, 17, 5, 1000)
    assert found.logprob == pytest.approx(float(exact[17]), abs=1e-12)
    assert list(found.top_ids) == np.argsort(-row, kind="stable")[:5].tolist()
    assert found.top_logprobs == pytest.approx([float(exact[token]) for token in found.top_ids], abs=1e-12)


def test_c39_padding_takes_no_part():
    row = np.array([1, 2, 3], dtype=np.float32)
    padded = np.array([1, 2, 3, 99, 99], dtype=np.float32)
    assert token_logprobs(padded, 1, 3, 3) == token_logprobs(row, 1, 3, 3)


def test_equal_logits_are_listed_by_id():
    row = np.array([0, 4, 4, -np.inf], dtype=np.float32)
    assert token_logprobs(row, 0, 4, 4).top_ids == (1, 2, 0, 3)
    assert token_logprobs(row, 3, 1, 4).logprob == -math.inf
    assert token_logprobs(row, 0, 0, 4).top_ids == ()


def test_large_logits_do_not_overflow():
    row = np.array([3e38, 3e38, -3e38], dtype=np.float32)
    assert token_logprobs(row, 0, 0, 3).logprob == 0.0  # ln 2 is lost beside 3e38
    row = np.array([1000, 1000, -1000], dtype=np.float32)
    assert token_logprobs(row, 0, 0, 3).logprob == pytest.approx(-math.log(2))
