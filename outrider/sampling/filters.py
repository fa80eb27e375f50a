"""The kept ids of one position: temperature, top-k, top-p and min-p.

Each filter takes the ids kept so far and returns those that it keeps, so that probabilities are always
those among the ids that the filters before it left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.sampling.arrays import FloatRow, Ids, Values
from outrider.sampling.ranking import best_set, floor_of_best

_PREFIX_SIZES = (256, 4096, 32_768)

# Weights taken at a time: a buffer that stays in the cache. One of a whole vocabulary is given back to the
# system after each use and fetched anew, which costs several times the exponentials.
_BLOCK = 16_384


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
        return log_normaliser(self.values)

    def only(self, indices: Ids) -> Kept:
        """The kept ids at ascending `indices`."""
        return Kept(self.ids[indices], self.values[indices])


def log_normaliser(values: npt.NDArray[Any], temperature: float = 1.0) -> float:
    """ln(sum(exp(values / temperature))) in float64, without overflow; the largest of `values` is finite."""
    return float(values.max()) / temperature + math.log(_total_weight(values, temperature))


def _total_weight(values: npt.NDArray[Any], temperature: float) -> float:
    """The sum of exp(values / temperature), over that of the largest value, in float64."""
    largest = float(values.max()) / temperature
    weights = np.empty(min(_BLOCK, values.size), dtype=np.float64)
    total = 0.0
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        out = weights[: block.size]
        out[:] = block
        if temperature != 1.0:
            out /= temperature
        out -= largest
        np.exp(out, out=out)
        total += float(out.sum())
    return total


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
    return kept if top_p >= 1.0 else kept.only(_prefix(kept.values, 1.0, top_p))


def keep_min_p(kept: Kept, min_p: float) -> Kept:
    """The ids with at least `min_p` times the probability of the best one."""
    return kept if min_p == 0.0 else kept.only(_likely(kept.values, 1.0, min_p))


def row_top_p(row: FloatRow, temperature: float, top_p: float) -> Kept:
    """`keep_top_p` on a whole row: only the ids that are kept are divided and copied."""
    return scaled(row, _prefix(row, temperature, top_p), temperature)


def row_min_p(row: FloatRow, temperature: float, min_p: float) -> Kept:
    """`keep_min_p` on a whole row: only the ids that are kept are divided and copied."""
    return scaled(row, _likely(row, temperature, min_p), temperature)


def _prefix(values: npt.NDArray[Any], temperature: float, top_p: float) -> Ids:
    """Indices, ascending, of the shortest prefix of the ranking with `top_p` of the weight.

    Dividing by a temperature keeps every order and every tie of float32 logits (`scaled`), so ranks are
    found before it.
    """
    largest = float(values.max()) / temperature
    wanted = top_p * _total_weight(values, temperature)
    # Bare values sort quicker than ids, and tell how long the prefix is; it is seldom long, so the best
    # few are tried first. All down to some value are a prefix of the ranking: the sums are the same.
    for size in (*_PREFIX_SIZES, values.size):
        sums = np.cumsum(np.exp(_falling(values, size).astype(np.float64) / temperature - largest))
        if sums[-1] >= wanted:
            return best_set(values, int(np.searchsorted(sums, wanted)) + 1)
    return np.arange(values.size, dtype=np.int64)  # rounding kept even the whole sum below a top_p close to 1


def _falling(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The best `size` values at least, falling; all of them when there are no more."""
    if size < values.size:
        values = values[values >= floor_of_best(values, size)]
    return np.sort(values)[::-1]


def _likely(values: npt.NDArray[Any], temperature: float, min_p: float) -> Ids:
    """Indices, ascending, of the values whose weight is at least `min_p`; the largest value has 1.

    Whatever falls short of ln(min_p) by more than rounding (1e-14 of a weight, and 1e-12 is allowed) is left
    out unexamined; the exponential decides on the rest.
    """
    largest = float(values.max()) / temperature
    lowest = (largest + math.log(min_p) - 1e-6 - 1e-12 * abs(largest)) * temperature
    with np.errstate(over="ignore"):  # a bound below every float32 becomes -inf, which bounds nothing
        bound = np.nextafter(values.dtype.type(lowest), values.dtype.type(-np.inf))
    near = np.flatnonzero(values >= bound)
    weights = np.exp(values[near].astype(np.float64) / temperature - largest)
    return np.asarray(near[weights >= min_p], dtype=np.int64)
