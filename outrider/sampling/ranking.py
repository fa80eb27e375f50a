"""The one order in which ids are ranked: value descending, then id ascending."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.sampling.arrays import Ids

# Blocks whose best entries bound the best of a whole row; see `floor_of_best`.
_NUM_BLOCKS = 1024


def in_order(values: npt.NDArray[Any]) -> Ids:
    """Indices of `values` by (value descending, index ascending): int64 [values.size]."""
    # Sorting the reversed array backwards turns a stable ascending sort into the order wanted, for
    # unsigned integers too, which have no negative.
    backwards = np.argsort(values[::-1], kind="stable")[::-1]
    return np.asarray(values.size - 1 - backwards, dtype=np.int64)


def best(values: npt.NDArray[Any], count: int) -> Ids:
    """Indices of the `count` best values, best first (all of them when there are fewer).

    Args:
        values: numbers without NaN, [size].
        count: how many to return, at least 0.
    """
    chosen = best_set(values, count)
    return np.asarray(chosen[in_order(values[chosen])], dtype=np.int64)


def best_set(values: npt.NDArray[Any], count: int) -> Ids:
    """The indices that `best` returns, in ascending order."""
    if count >= values.size:
        return np.arange(values.size, dtype=np.int64)
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    contenders: Ids = np.flatnonzero(values >= floor_of_best(values, count))
    if contenders.size == count:
        return contenders
    # Everything above the count-th value is in; among its equals the smaller index goes first.
    held = values[contenders]
    last = np.partition(held, held.size - count)[held.size - count]
    above = held > last
    equal = np.flatnonzero(held == last)[: count - int(above.sum())]
    above[equal] = True
    return np.asarray(contenders[above], dtype=np.int64)


def floor_of_best(values: npt.NDArray[Any], count: int) -> Any:
    """A value that at least `count` entries reach, usually few more; 1 <= count <= values.size.

    Each of the blocks below has an entry that reaches the block's maximum, so `count` entries reach
    the count-th largest of the maxima. Reading a row once costs a tenth of partitioning it.
    """
    size = values.size // _NUM_BLOCKS
    if count > _NUM_BLOCKS // 4 or size < 8:
        return np.partition(values, values.size - count)[values.size - count]
    maxima = values[: size * _NUM_BLOCKS].reshape(_NUM_BLOCKS, size).max(axis=1)
    return np.partition(maxima, _NUM_BLOCKS - count)[_NUM_BLOCKS - count]
