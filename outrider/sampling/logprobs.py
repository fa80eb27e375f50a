"""The log-probabilities that a response reports: those of the target's own, unprocessed logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outrider.sampling.arrays import FloatRow
from outrider.sampling.filters import log_normaliser
from outrider.sampling.ranking import best


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The log-probability of one committed token and of the most probable ids at its position."""

    logprob: float
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


def token_logprobs(logits: FloatRow, token: int, num_top: int, vocab_size: int) -> TokenLogprobs:
    """Log-softmax, in float64, of the real ids' unprocessed logits.

    Args:
        logits: unprocessed logits, float32 [width >= vocab_size].
        token: the committed id, below `vocab_size`.
        num_top: how many of the most probable ids to list, best first, ties to the smaller id.
        vocab_size: number of real ids; logits past it are padding and take no part.
    """
    row = logits[:vocab_size]
    normaliser = log_normaliser(row)
    top = best(row, num_top)
    return TokenLogprobs(
        logprob=float(row[token]) - normaliser,
        top_ids=tuple(top.tolist()),
        top_logprobs=tuple((row[top].astype(np.float64) - normaliser).tolist()),
    )
