"""The way from a row of logits to the ids that may be drawn, in the order that everyone agrees on."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from outrider.sampling.arrays import FloatRow
from outrider.sampling.filters import (
    Kept,
    keep_min_p,
    keep_top_p,
    row_min_p,
    row_top_p,
    scaled,
    top_k_ids,
)
from outrider.sampling.history import TokenHistory
from outrider.sampling.parameters import SamplingParameters
from outrider.sampling.penalties import (
    add_bias,
    mask,
    penalise_frequency,
    penalise_presence,
    penalise_repetition,
)


def changes_logits(parameters: SamplingParameters, history: TokenHistory) -> bool:
    """True where `processed` would change a logit at the history's next position."""
    return (
        parameters.needs_counts or bool(parameters.logit_bias) or history.num_output < parameters.min_tokens
    )


def processed(
    row: FloatRow, parameters: SamplingParameters, history: TokenHistory, end_ids: Collection[int]
) -> FloatRow:
    """The first half of the order, float32 [vocab]: masks, bias and penalties; filters come after it.

    The history is that of this row's own path, so a drafted position sees the tokens drafted before it
    as plain decoding would. Returns `row` itself when nothing applies, a changed copy otherwise.
    """
    if not changes_logits(parameters, history):
        return row
    row = row.copy()
    # A grammar's mask belongs here, before everything else.
    if history.num_output < parameters.min_tokens:
        mask(row, end_ids)
    add_bias(row, parameters.logit_bias)
    if parameters.repetition_penalty != 1.0:
        penalise_repetition(row, history.seen(), parameters.repetition_penalty)
    ids, counts = history.output_counts()
    if parameters.presence_penalty != 0.0:
        penalise_presence(row, ids, parameters.presence_penalty)
    if parameters.frequency_penalty != 0.0:
        penalise_frequency(row, ids, counts, parameters.frequency_penalty)
    return row


def filtered(row: FloatRow, parameters: SamplingParameters) -> Kept:
    """The second half of the order: temperature, top-k, top-p and min-p; not for greedy.

    The first filter that is on picks its ids before they are scaled: dividing by a positive number moves no
    rank, and only the kept ids need the division.
    """
    temperature, top_p, min_p = parameters.temperature, parameters.top_p, parameters.min_p
    if parameters.top_k == 0 and top_p < 1.0:
        return keep_min_p(row_top_p(row, temperature, top_p), min_p)
    if parameters.top_k == 0 and min_p > 0.0:
        return row_min_p(row, temperature, min_p)
    kept = scaled(row, top_k_ids(row, parameters.top_k), temperature)
    return keep_min_p(keep_top_p(kept, top_p), min_p)


def all_finite_or_masked(row: FloatRow) -> bool:
    """True when the row has no NaN and no +inf (-inf is a masked id)."""
    # The maximum of a row is NaN if any entry is, and +inf if any entry is: one pass tells both.
    return row.size == 0 or bool(row.max() < np.inf)
