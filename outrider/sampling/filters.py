"""The kept ids of one position: temperature, top-k, top-p and min-p.

Each filter takes the ids kept so far and returns those that it keeps, so that probabilities are always
those among the ids that the filters before it left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outrider.sampling.arrays import FloatRow, Ids, Values
from outrider.sampling.ranking import best_set, floor_of_best

_PREFIX_SIZES = (256, 4096, 32_768)


@dataclass(frozen=True, slots=True)
class Kept:
    """The ids still in the draw, ascending, each with its scaled logit."""

    ids: Ids  # [num_kept], ascending
    values: Values  # [num_kept], finite

    def weights(self) -> Values:
        """Probabilities up to a common factor; the best id has weight 1: float64 [num_kept]."""
        return np.asarray(np.exp(self.values - self.values.max()), dtype=np.float64)

    def log_normaliser(self) -> float:
        """The logarithm of the summed exponentials: a value minus this is a log-probability."""
        return log_normaliser(self.values.copy())

    def only(self, indices: Ids) -> Kept:
        """The kept ids at ascending `indices`."""
        return Kept(self.ids[indices], self.values[indices])


def log_normaliser(values: Values) -> float:
    """ln(sum(exp(values))) in float64, without overflow; `values` [num_ids] is overwritten."""
    largest = float(values.max())
    values -= largest
    np.exp(values, out=values)
    return largest + math.log(float(values.sum()))


def scaled(row: FloatRow, ids: Ids, temperature: float) -> Kept:
    """The ids among `ids` that are not masked, with logit / temperature in float64.

    float64 keeps float32 logits that differ apart after the division, so temperature never makes a tie.
    """
    values = (row if ids.size == row.size else row[ids]).astype(np.float64)
    values /= temperature
    possible = values > -np.inf
    return Kept(ids, values) if possible.all() else Kept(ids[possible], values[possible])


def top_k_ids(row: FloatRow, top_k: int) -> Ids:
    """The best `top_k` ids of a row, ascending; every id when `top_k` is 0 (off)."""
    if top_k == 0 or top_k >= row.size:
        return np.arange(row.size, dtype=np.int64)
    return best_set(row, top_k)


def keep_top_p(kept: Kept, top_p: float) -> Kept:
    """The shortest prefix of the ranking whose probability, summed in float64, reaches `top_p`."""
    if top_p >= 1.0:
        return kept
    largest = kept.values.max()
    wanted = top_p * float(np.exp(kept.values - largest).sum())
    # Bare values sort quicker than ids, and tell how long the prefix is; it is seldom long, so the best
    # few are tried first. All down to some value are a prefix of the ranking: the sums are the same.
    for size in (*_PREFIX_SIZES, kept.values.size):
        sums = np.cumsum(np.exp(_falling(kept.values, size) - largest))
        if sums[-1] >= wanted:
            return kept.only(best_set(kept.values, int(np.searchsorted(sums, wanted)) + 1))
    return kept  # rounding kept even the whole sum below a top_p close to 1


def _falling(values: Values, size: int) -> Values:
    """The best `size` values at least, falling; all of them when there are no more."""
    if size < values.size:
        values = values[values >= floor_of_best(values, size)]
    return np.sort(values)[::-1]


def keep_min_p(kept: Kept, min_p: float) -> Kept:
    """The ids with at least `min_p` times the probability of the best one."""
    if min_p == 0.0:
        return kept
    return kept.only(np.flatnonzero(kept.weights() >= min_p))
