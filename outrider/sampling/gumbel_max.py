"""The ids with the best scores, where score = scaled logit + Gumbel noise.

The argmax samples the softmax of the scaled logits exactly; the best few sample it without replacement.
Ties go to the smaller id. Masked ids (-inf) never win.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from outrider.sampling.arrays import Bits, FloatRow, Ids, Values
from outrider.sampling.filters import Kept
from outrider.sampling.noise import gumbel, uniform_bits, vocabulary_bits
from outrider.sampling.ranking import best

# Ids looked at together: working memory that stays in the cache, and small enough for the allocator to
# hand out again rather than fetch anew from the system, which would cost more than the arithmetic.
_BLOCK = 32_768


class Scored(NamedTuple):
    """Ids, best first, each with its score."""

    ids: Ids  # [num_ids]
    scores: Values  # [num_ids], falling


def best_of_kept(kept: Kept, key: int, width: int) -> Scored:
    """The best `width` of the kept ids; noise is drawn for the kept ids only."""
    scores = kept.values + gumbel(uniform_bits(key, kept.ids))
    chosen = best(scores, width)
    return Scored(kept.ids[chosen], scores[chosen])


def best_of_all(row: FloatRow, temperature: float, key: int, width: int) -> Scored:
    """The best `width` ids of a whole row, with logarithms for few of them.

    Equal, bit for bit, to scoring every id; see `contenders` for the reason.

    Args:
        row: processed logits, float32 [vocab], without NaN or +inf.
        temperature: positive divisor of the logits.
        key: the position's noise key.
        width: how many ids to return; fewer come back when fewer are possible.
    """
    bits = vocabulary_bits(key, row.size)
    ids = contenders(row, temperature, bits, width)
    scores = _scores(row, temperature, bits, ids)
    possible = scores > -np.inf
    if not possible.all():
        ids, scores = ids[possible], scores[possible]
    chosen = best(scores, width)
    return Scored(ids[chosen], scores[chosen])


def contenders(row: FloatRow, temperature: float, bits: Bits, width: int) -> Ids:
    """Ids, ascending, among which the best `width` scores are sure to be.

    Score a few promising ids, and let L be the width-th best of these scores. At least `width` ids
    reach L, so an id that is among the best `width` has

        x + G >= L          x: its scaled logit, G = -ln(-ln u): its noise.

    With N the largest noise of all this needs

        (1)  x >= L - N              a comparison of float32 logits.

    Since -ln u >= 1 - u, it also has G <= -ln(1 - u), and so needs

        (2)  1 - u <= exp(x - L)     in which 1 - u >= c * 2^-53, c = 2^53 - 1 - (bits >> 11) exactly,
                                     however u was rounded.

    An id that fails either one loses without a logarithm; those that pass (2) are about as many as
    exp(x - L) sums to, a handful. In floating point the inequalities hold up to rounding, so L is first
    lowered by 1e-6 + 1e-12 |L|, far more than all rounding together (a score's last place is
    1.2e-16 |L|, the error of a noise or an exponential below 1e-14). That only admits ids that then lose.
    """
    lowest = max(
        _width_th_score(row, temperature, bits, _block_winners(row), width),
        _width_th_score(row, temperature, bits, _block_winners(bits), width),
    )
    if math.isinf(lowest):  # L is not known; perhaps not even `width` ids are possible
        return np.flatnonzero(row > -np.inf)
    lowest -= 1e-6 + 1e-12 * abs(lowest)
    largest_noise = float(gumbel(bits.max(keepdims=True))[0])
    with np.errstate(over="ignore"):  # a bound below every float32 becomes -inf, which bounds nothing
        least_logit = np.nextafter(np.float32((lowest - largest_noise) * temperature), np.float32(-np.inf))

    survivors = []
    for start in range(0, row.size, _BLOCK):
        block_row, block_bits = row[start : start + _BLOCK], bits[start : start + _BLOCK]
        ids = np.flatnonzero(block_row >= least_logit)
        gaps = block_row[ids].astype(np.float64) / temperature - lowest
        np.minimum(gaps, 0.0, out=gaps)  # from 0 on (2) always holds, and exp would overflow
        complements = ~block_bits[ids] >> np.uint64(11)
        survivors.append(ids[complements <= np.exp(gaps) * 2.0**53] + start)
    return np.concatenate(survivors)


def _block_winners(values: FloatRow | Bits) -> Ids:
    """The index of the largest value in each of about a thousand blocks: likely winners, cheaply found."""
    size = max(values.size // 1024, 8)
    starts = np.arange(values.size // size, dtype=np.int64) * size
    winners = values[: starts.size * size].reshape(starts.size, size).argmax(axis=1)
    return np.asarray(starts + winners, dtype=np.int64)


def _width_th_score(row: FloatRow, temperature: float, bits: Bits, ids: Ids, width: int) -> float:
    """The width-th best score among `ids`, -inf when there are fewer."""
    if ids.size < width:
        return -math.inf
    scores = _scores(row, temperature, bits, ids)
    return float(np.partition(scores, scores.size - width)[scores.size - width])


def _scores(row: FloatRow, temperature: float, bits: Bits, ids: Ids) -> Values:
    values = row[ids].astype(np.float64) / temperature
    return np.asarray(values + gumbel(bits[ids]), dtype=np.float64)
