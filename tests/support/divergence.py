"""Where two answers part, and by how little: position, both ids, and the margin between their scores.

Score is what the choice maximises: the processed logit, divided by the temperature and with the position's
noise when it is sampled. Two answers that part where the margin is under a stated bound are a tie, which is
counted and shown; between workers of one numerics id the bound is 0, and there is no tie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.sampling.noise import PURPOSE_TOKEN, gumbel, noise_key, uniform_bits
from outrider.sampling.parameters import SamplingParameters
from outrider.sampling.sampler import TokenSampler
from outrider.wire.generation import sampling_from_pb, sampling_to_pb

Logits = Callable[[Sequence[int]], np.ndarray]
"""The row behind some tokens, float32 [width]."""


@dataclass(frozen=True)
class Asked:
    """What an answer is a function of, beside the target."""

    prompt: tuple[int, ...]
    sampling: SamplingParameters
    seed: int = 7
    choice: int = 0

    def __post_init__(self) -> None:
        # As a message holds them, in float32: so they reach every service.
        object.__setattr__(self, "sampling", sampling_from_pb(sampling_to_pb(self.sampling)))


@dataclass(frozen=True)
class Divergence:
    """The first place where two answers differ."""

    # Index in the output.
    position: int
    # None: that answer has ended.
    ids: tuple[int | None, int | None]
    # Between the scores of both; infinite where one of them could not be chosen, or has ended.
    margin: float

    def is_tie(self, bound: float) -> bool:
        return self.margin < bound

    def __str__(self) -> str:
        left, right = self.ids
        return f"they part at output index {self.position}: {left} and {right}, margin {self.margin:.3g}"


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first id that differs, or where the shorter one ends."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


def divergence(
    left: Sequence[int], right: Sequence[int], asked: Asked, logits: Logits, *, vocab_size: int
) -> Divergence | None:
    """How two outputs for one request differ; None when they are equal."""
    position = first_difference(left, right)
    if position is None:
        return None
    one, other = (answer[position] if position < len(answer) else None for answer in (left, right))
    margin = float("inf")
    if one is not None and other is not None:
        scores = _scores([*asked.prompt, *left[:position]], asked, logits, vocab_size)
        if one in scores and other in scores:
            margin = abs(scores[one] - scores[other])
    return Divergence(position, (one, other), margin)


def _scores(tokens: Sequence[int], asked: Asked, logits: Logits, vocab_size: int) -> dict[int, float]:
    """Of the ids that may be chosen behind `tokens`."""
    sampler = TokenSampler(
        asked.sampling,
        seed=asked.seed,
        choice=asked.choice,
        tokens=tokens,
        prompt_length=len(asked.prompt),
        end_ids=frozenset(),
        vocab_size=vocab_size,
    )
    kept = sampler.kept(logits(tokens))
    scores = kept.values
    if not asked.sampling.greedy:
        key = noise_key(asked.seed, asked.choice, PURPOSE_TOKEN, len(tokens))
        scores = scores + gumbel(uniform_bits(key, kept.ids))
    return dict(zip(kept.ids.tolist(), scores.tolist(), strict=True))
