"""Whether a backend is used at the moment: reads and writes each for themselves, told in the log as one."""

from __future__ import annotations

from collections.abc import Callable

from outrider.telemetry import get_logger

log = get_logger(__name__)

FAILURES = 3
"""Failures with no success between them after which the backend is left alone for a while."""
FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 15.0


class Breaker:
    """Says no for a while after some failures, then lets one try decide.

    Args:
        clock: seconds.
        changed: called when `reason` may have become empty, or no longer be so.
    """

    def __init__(self, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._num_failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._not_before_s = 0.0
        self.reason = ""
        """Why it says no; empty: it doesn't."""

    @property
    def allows(self) -> bool:
        """A try is worth it."""
        return not self.reason or self._clock() >= self._not_before_s

    def failed(self, why: str, *, at_once: bool = False) -> None:
        """A try has failed; with `at_once` this one is enough."""
        if not self.allows:
            return  # begun before the pause, which it has no say in
        self._num_failures += 1
        if self._num_failures < FAILURES and not self.reason and not at_once:
            return
        self._pause_s = min(LAST_PAUSE_S, 2 * self._pause_s) if self.reason else FIRST_PAUSE_S
        self._not_before_s = self._clock() + self._pause_s
        self.reason = why
        self._changed()

    def worked(self) -> None:
        """A try has come through."""
        self._num_failures = 0
        if self.reason:
            self.reason = ""
            self._changed()


class Health:
    """Both breakers: a full server still reads, and a slow one may still write."""

    def __init__(self, kind: str, clock: Callable[[], float]) -> None:
        self._kind = kind
        self._told = False
        self.reads = Breaker(clock, self._tell)
        self.writes = Breaker(clock, self._tell)

    @property
    def reason(self) -> str:
        """Why it is not used, or not for all; empty: it is."""
        return self.reads.reason or self.writes.reason

    def _tell(self) -> None:
        if bool(self.reason) == self._told:
            return
        self._told = bool(self.reason)
        if self._told:
            log.warning("store_left_alone", store=self._kind, reason=self.reason)
        else:
            log.info("store_used_again", store=self._kind)
