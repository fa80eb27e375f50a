"""The changes that a request makes to single logits: masks, bias and penalties.

Every function writes into a float32 row [vocab] that the caller owns. Plain and speculative decoding
call the same ones: there is no second copy of a penalty anywhere.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from outrider.sampling.arrays import FloatRow, Ids, Values
from outrider.sampling.parameters import BAN_BIAS

_LARGEST = float(np.finfo(np.float32).max)


def mask(row: FloatRow, ids: Collection[int]) -> None:
    """Take `ids` out of the draw; ids outside the row are none of its business."""
    for token in ids:
        if 0 <= token < row.size:
            row[token] = -np.inf


def add_bias(row: FloatRow, bias: Collection[tuple[int, float]]) -> None:
    """Add each (id, amount); the lowest amount, -100, is a ban and takes the id out of the draw."""
    for token, amount in bias:
        if 0 <= token < row.size:
            row[token] = -np.inf if amount <= BAN_BIAS else row[token] + np.float32(amount)


def penalise_repetition(row: FloatRow, seen: Ids, penalty: float) -> None:
    """Divide positive and multiply negative logits of ids in prompt + output (CTRL, arXiv 1909.05858)."""
    values = row[seen].astype(np.float64)
    with np.errstate(over="ignore"):  # a penalty near 0 overflows even float64; `_store` saturates it
        changed = np.where(values > 0, values / penalty, values * penalty)
    _store(row, seen, changed)


def penalise_presence(row: FloatRow, ids: Ids, penalty: float) -> None:
    """Subtract `penalty` from the logits of `ids`, each of which stands in the output."""
    _store(row, ids, row[ids].astype(np.float64) - penalty)


def penalise_frequency(row: FloatRow, ids: Ids, counts: Ids, penalty: float) -> None:
    """Subtract `penalty` as often as each id stands in the output (`counts`, aligned with `ids`)."""
    _store(row, ids, row[ids].astype(np.float64) - counts * penalty)


def _store(row: FloatRow, ids: Ids, values: Values) -> None:
    """Write `values` back as float32: a huge one saturates, and only a masked id is at -inf."""
    row[ids] = np.where(np.isneginf(row[ids]), -np.inf, np.clip(values, -_LARGEST, _LARGEST))
