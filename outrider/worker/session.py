"""One session as a worker holds it, and its rounds that are not answered yet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.trace import INVALID_SPAN, Span

from outrider.wire.worker import Addressed, Header, Timings

if TYPE_CHECKING:
    from collections.abc import Sequence as Ids

    from outrider.runtime.sequence import Sequence
    from outrider.worker.connection import Connection
    from outrider.worker.role import Job

PROTECTED_TOKENS = 64
"""Tokens that a session commits after its KV was dropped before it can be dropped again: one KV page."""


class SessionKey(NamedTuple):
    """Sessions of different peers never meet, whatever ids they choose."""

    peer_id: bytes
    session_id: bytes


@dataclass(slots=True, eq=False)
class Session:
    """All that a worker knows of one session. Owned by the engine's thread."""

    key: SessionKey
    # None: its stream has ended and the lease runs.
    connection: Connection | None
    epoch: int
    # Order of admission: a lower ticket goes first when KV is short.
    ticket: int
    tokens: list[int]
    prompt_length: int
    sequence: Sequence
    # The role's own, such as a sampler.
    state: Any
    rounds: deque[Round] = field(default_factory=deque)
    # The last answer, kept so that a round that is sent again gets it again.
    answered: Addressed[Any] | None = None
    # Where the session stood before its last tokens came: a peer that missed the answer still stands there.
    previous_length: int = 0
    # The answer is complete: nothing but `answered` is left.
    finished: bool = False
    # Length below which the KV must not be dropped again.
    protected_until: int = 0
    # A forward with this session in it failed: it runs by itself until one succeeds.
    alone: bool = False
    lease_until_ns: int | None = None
    # When the last round was answered.
    idle_since_ns: int = 0
    # How long its peer took to send the next round, last time.
    away_ns: int = 0

    @property
    def length(self) -> int:
        """Committed tokens, prompt included."""
        return len(self.tokens)

    def commit(self, ids: Ids[int]) -> None:
        """Append committed tokens."""
        self.previous_length = len(self.tokens)
        self.tokens.extend(ids)

    def agrees_with(self, base_length: int) -> bool:
        """Whether a peer that stands at `base_length` can go on: at most the last answer is missing there."""
        if self.finished:
            return self.answered is not None and base_length == self.answered.header.base_length
        return base_length in (self.length, self.previous_length)


@dataclass(slots=True, eq=False)
class Round:
    """A round that is not answered yet; times are nanoseconds of the monotonic clock."""

    session: Session
    header: Header
    ask: Any
    arrived_ns: int
    # Set when the round comes up.
    job: Job | None = None
    span: Span = INVALID_SPAN
    # Set by the first forward, updated by each.
    started_ns: int | None = None
    num_forwards: int = 0
    batch_size: int = 0
    rows: int = 0

    def joined(self, *, started_ns: int, batch_size: int, rows: int) -> None:
        """Note a forward that the round is part of."""
        self.started_ns = self.started_ns or started_ns
        self.num_forwards += 1
        self.batch_size, self.rows = batch_size, rows

    def timings(self, now_ns: int) -> Timings:
        """Where the time went, for an answer given at `now_ns`."""
        started_ns = self.started_ns or now_ns
        return Timings(
            queue_us=(started_ns - self.arrived_ns) // 1000,
            compute_us=(now_ns - started_ns) // 1000,
            num_forwards=self.num_forwards,
            batch_size=self.batch_size,
            rows=self.rows,
        )

    def answer_header(self) -> Header:
        """The header that the answer travels under: the epoch may have been raised meanwhile."""
        return replace(self.header, epoch=self.session.epoch)
