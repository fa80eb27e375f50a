"""Medians and spreads of paired ratios."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some values with their quartiles; of fewer than four, the smallest and the largest."""

    median: float
    low: float
    high: float
    num: int

    def __format__(self, spec: str) -> str:
        spec = spec or ".2f"
        return f"{self.median:{spec}} ({self.low:{spec}}-{self.high:{spec}})"


def spread(values: Iterable[float]) -> Spread | None:
    """None when there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    if len(ordered) < 4:
        return Spread(statistics.median(ordered), ordered[0], ordered[-1], len(ordered))
    low, middle, high = statistics.quantiles(ordered, n=4, method="inclusive")
    return Spread(middle, low, high, len(ordered))


def ratios(ours: Sequence[float | None], others: Sequence[float | None]) -> list[float]:
    """`ours[i] / others[i]` of every pair that has both; raises ValueError for other lengths."""
    pairs = zip(ours, others, strict=True)
    return [one / other for one, other in pairs if one is not None and other]


def percentile(values: Iterable[float], share: float) -> float | None:
    """The value below which `share` (0 to 1) of the values lie, by linear interpolation."""
    ordered = sorted(values)
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
