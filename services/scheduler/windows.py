"""Sums over the last seconds, in memory that does not grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Sums(NamedTuple):
    """A numerator and its denominator, such as accepted and drafted tokens."""

    part: float = 0.0
    whole: float = 0.0

    @property
    def ratio(self) -> float | None:
        """None without anything to divide by."""
        return self.part / self.whole if self.whole else None


class Window:
    """A ring of buckets; adding and forgetting cost the same whatever happened before.

    Example: with 3 buckets of 10 s it holds, at 25 s, what came from 0 s on, and at 30 s, from 10 s on.

    Args:
        width_s: of one bucket.
        num_buckets: of the ring, the one that is being filled among them.
        now: the clock's time.
        on_gone: told the sums of a bucket that is forgotten, oldest first.
    """

    def __init__(
        self,
        width_s: float,
        num_buckets: int,
        now: float,
        *,
        on_gone: Callable[[Sums], None] = lambda _: None,
    ) -> None:
        self._width_s = width_s
        self._num_buckets = num_buckets
        self._on_gone = on_gone
        self._began = now
        # Number of the bucket that is being filled, counted from the clock's zero.
        self._newest = self._number(now)
        self._ring: list[Sums] = [Sums()] * num_buckets

    def add(self, now: float, part: float, whole: float = 0.0) -> None:
        """Add to both sums."""
        self._advance(now)
        slot = self._newest % self._num_buckets
        old = self._ring[slot]
        self._ring[slot] = Sums(old.part + part, old.whole + whole)

    def sums(self, now: float, *, num_buckets: int | None = None, skipped: int = 0) -> Sums:
        """Over the newest `num_buckets` behind the newest `skipped`; all of them unless they are given."""
        self._advance(now)
        count = self._num_buckets - skipped if num_buckets is None else num_buckets
        buckets = [
            self._ring[(self._newest - skipped - age) % self._num_buckets]
            for age in range(min(count, self._num_buckets - skipped))
        ]
        return Sums(sum(each.part for each in buckets), sum(each.whole for each in buckets))

    def covered_s(self, now: float) -> float:
        """Seconds that all buckets together look back on; less right after the start, never 0."""
        oldest_began = (self._number(now) - self._num_buckets + 1) * self._width_s
        return max(1e-3, now - max(oldest_began, self._began))

    def _number(self, now: float) -> int:
        return int(now // self._width_s)

    def _advance(self, now: float) -> None:
        """Forget what is too old; at most one turn of the ring, however long nothing happened."""
        number = self._number(now)
        for step in range(1, min(number - self._newest, self._num_buckets) + 1):
            slot = (self._newest + step) % self._num_buckets
            gone, self._ring[slot] = self._ring[slot], Sums()
            if gone != Sums():
                self._on_gone(gone)
        self._newest = max(self._newest, number)
