"""Counts that go forward and back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.sampling.history import TokenHistory
from tests.outrider.sampling.reference import STEADY

TOKENS = st.lists(st.integers(0, 9), max_size=12)


def _history(tokens, prompt_length=0):
    return TokenHistory(tokens, prompt_length=prompt_length, vocab_size=8, counted=True)


def _state(history):
    ids, counts = history.output_counts()
    return (
        history.tokens,
        sorted(history.seen().tolist()),
        dict(zip(ids.tolist(), counts.tolist(), strict=True)),
    )


@settings(**STEADY)
@given(prompt=TOKENS, output=TOKENS, rejected=TOKENS)
def test_c15_rejected_tokens_leave_no_trace(prompt, output, rejected):
    history = _history(prompt + output, len(prompt))
    before = _state(history)
    for token in rejected:
        history.append(token)
    assert _state(history) == _state(_history(prompt + output + rejected, len(prompt)))
    history.truncate(len(prompt) + len(output))
    assert _state(history) == before
    assert before == (
        tuple(prompt + output),
        sorted({token for token in prompt + output if token < 8}),
        dict(Counter(token for token in output if token < 8)),
    )


def test_the_prompt_cannot_be_cut():
    history = _history([1, 2, 3, 4], 3)
    for length in (2, 5):
        with pytest.raises(ValueError, match="cannot truncate"):
            history.truncate(length)
    history.truncate(3)
    assert history.num_output == 0
    assert history.last == 3


def test_impossible_tokens_are_refused():
    with pytest.raises(ValueError, match="negative"):
        _history([1, -1])
    with pytest.raises(ValueError, match="negative"):
        _history([1]).append(-1)
    with pytest.raises(ValueError, match="prompt_length"):
        _history([1], 2)
    assert _history([]).last is None
