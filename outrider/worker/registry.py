"""All sessions of a worker, by peer and id, with the leases of those whose stream has ended."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.runtime.runtime import Runtime
    from outrider.worker.connection import Connection
    from outrider.worker.session import Session, SessionKey

MAX_FINISHED = 1024
"""Finished sessions whose last answer is remembered, should their scheduler have missed it."""


class Registry:
    """Holds sessions and what they hold. Owned by the engine's thread."""

    def __init__(self, runtime: Runtime, lease_s: float) -> None:
        self.runtime = runtime
        self._lease_ns = round(lease_s * 1e9)
        self._live: dict[SessionKey, Session] = {}
        self._finished: OrderedDict[SessionKey, Session] = OrderedDict()
        self._leased: set[Session] = set()
        # Counted by whoever preempts.
        self.num_preemptions = 0

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Session]:
        """Sessions that are not finished, in the order of admission."""
        return iter(self._live.values())

    def get(self, key: SessionKey) -> Session | None:
        """The session, finished or not."""
        return self._live.get(key) or self._finished.get(key)

    def add(self, session: Session) -> None:
        """Hold a new session."""
        self._live[session.key] = session

    def drop(self, session: Session) -> None:
        """Forget a session and free what it holds."""
        if self._live.pop(session.key, None) is not None:
            self.runtime.release(session.sequence)
        self._finished.pop(session.key, None)
        self._leased.discard(session)

    def finish(self, session: Session) -> None:
        """Free what a session holds but for its last answer."""
        del self._live[session.key]
        self.runtime.release(session.sequence)
        session.finished = True
        session.tokens, session.state = [], None
        self._finished[session.key] = session
        if len(self._finished) > MAX_FINISHED:
            self.drop(next(iter(self._finished.values())))

    def start_lease(self, connection: Connection, now_ns: int) -> None:
        """The stream has ended: its sessions wait to be resumed."""
        for session in self.of(connection):
            session.connection = None
            session.lease_until_ns = now_ns + self._lease_ns
            self._leased.add(session)

    def of(self, connection: Connection) -> list[Session]:
        """Sessions of a stream, finished ones too."""
        held = (*self._live.values(), *self._finished.values())
        return [session for session in held if session.connection is connection]

    def take_over(self, session: Session, connection: Connection) -> None:
        """A new stream resumes the session."""
        session.connection = connection
        session.lease_until_ns = None
        self._leased.discard(session)

    def expired(self, now_ns: int) -> list[Session]:
        """Sessions whose lease is over."""
        return [session for session in self._leased if (session.lease_until_ns or 0) <= now_ns]

    def next_expiry_ns(self) -> int | None:
        """When the next lease ends; None when none runs."""
        return min((session.lease_until_ns or 0 for session in self._leased), default=None)
