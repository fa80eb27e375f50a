"""Waiting a moment for company, so that sessions share forwards instead of taking turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.worker.session import Session

SHARE = 0.2
"""Of the last forward's time, how much may be spent on waiting for those that it served."""

LONGEST_NS = 10_000_000


class Gathering:
    """Whom the next forward should wait for, and until when.

    Two sessions whose rounds come one after the other would get forwards of their own for ever: while one
    runs, the other comes back. A forward over both costs hardly more, so one waits for the sessions that the
    last forward answered, those only that lately came back within the time there is.
    """

    def __init__(self) -> None:
        self._expected: list[Session] = []
        self._until_ns = 0

    def ran(self, sessions: Iterable[Session], took_ns: int, now_ns: int) -> None:
        """A forward over `sessions` has ended, after `took_ns`."""
        patience_ns = min(LONGEST_NS, int(SHARE * took_ns))
        self._until_ns = now_ns + patience_ns
        self._expected = [session for session in sessions if session.away_ns <= patience_ns]

    def remaining_s(self, now_ns: int) -> float:
        """Seconds to wait before the next forward; 0 when all have come, or no time is left."""
        if now_ns >= self._until_ns or not any(_is_away(session) for session in self._expected):
            self._expected = []
            return 0.0
        return (self._until_ns - now_ns) / 1e9


def _is_away(session: Session) -> bool:
    return not session.rounds and not session.finished and session.connection is not None
