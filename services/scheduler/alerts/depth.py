"""The cap on drafted tokens while memory is short."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.scheduler.alerts.evaluation import Watched
    from services.scheduler.alerts.rules import Rule

SMALLEST = 1


class DepthCap:
    """One rule's cap: halved in steps while the figure is out of bounds, doubled in steps after the alert.

    Example with k up to 12: 6, 3, 1, and back over 2, 4 and 8 to none. While the figure has come back inside
    the bounds, but not by the margin, the cap stays as it is.
    """

    def __init__(self, rule: Rule, max_depth: int) -> None:
        self.cap: int | None = None
        self._rule = rule
        self._max_depth = max_depth
        self._stepped_at: float | None = None

    def step(self, watched: Watched, now: float) -> bool:
        """Whether the cap has changed."""
        waits = self._stepped_at is not None and now - self._stepped_at < self._rule.cooldown_s
        if watched.value is None or waits:
            return False
        cap = self._next(watched.value, firing=watched.firing)
        if cap == self.cap:
            return False
        self.cap, self._stepped_at = cap, now
        return True

    def _next(self, value: float, *, firing: bool) -> int | None:
        if firing and self._rule.outside(value):
            return max(SMALLEST, (self._max_depth if self.cap is None else self.cap) // 2)
        if firing or self.cap is None:
            return self.cap
        return 2 * self.cap if 2 * self.cap < self._max_depth else None
