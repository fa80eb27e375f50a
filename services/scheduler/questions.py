"""Rounds that wait for their answer on one stream, by (session, epoch, round, base length)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from outrider.rpc.errors import from_failure
from outrider.wire.worker import Header, Opened, SessionError, Stale, Transfer
from services.scheduler.ports import PeerLost, StaleSession

A = TypeVar("A")

FIRST_CREDIT = 1
"""Before Opened has come only the round inside Open may be unanswered."""


class _Key(NamedTuple):
    epoch: int
    round: int
    base_length: int


@dataclass(slots=True)
class _Waiting(Generic[A]):
    """The unanswered rounds of one session."""

    credit: int = FIRST_CREDIT
    answers: dict[_Key, asyncio.Future[A]] = field(default_factory=dict)
    # Those that opened the session.
    openings: set[_Key] = field(default_factory=set)
    # What carrying their events took so far.
    transfers: dict[_Key, Transfer] = field(default_factory=dict)


class Questions(Generic[A]):
    """Joins answers with who waits for them; what nobody waits for is counted and dropped.

    Args:
        answer: the event that answers a round.
    """

    def __init__(self, answer: type[A]) -> None:
        self._answer = answer
        self._sessions: dict[bytes, _Waiting[A]] = {}
        self._connected = False
        self.num_dropped = 0

    @property
    def num_sessions(self) -> int:
        """Sessions that were opened on this stream and not closed."""
        return len(self._sessions)

    def begin(self) -> None:
        """A stream is up."""
        self._connected = True

    def reset(self) -> bool:
        """The stream is down: nobody will be answered. Whether it had been up."""
        was_connected, self._connected = self._connected, False
        sessions, self._sessions = self._sessions, {}
        for waiting in sessions.values():
            _fail(waiting.answers.values(), PeerLost("the stream has ended"))
        return was_connected

    def ask(self, header: Header, *, opens: bool) -> asyncio.Future[A]:
        """A future for the answer to the round of this header."""
        if opens:  # whatever the worker held is replaced, and older answers will not count
            self.forget(header.session)
        waiting = self._sessions.setdefault(header.session, _Waiting())
        key = _Key(header.epoch, header.round, header.base_length)
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        waiting.answers[key] = answer
        if opens:
            waiting.openings.add(key)
        answer.add_done_callback(lambda done: _settle(waiting, key, done))
        return answer

    def room(self, session: bytes) -> int:
        """Credit less unanswered rounds."""
        waiting = self._sessions.get(session)
        if waiting is None:
            return 0
        return waiting.credit - sum(not answer.done() for answer in waiting.answers.values())

    def forget(self, session: bytes) -> None:
        """Nobody waits for this session any more."""
        waiting = self._sessions.pop(session, None)
        for answer in list(waiting.answers.values()) if waiting else ():
            answer.cancel()

    def sent(self, header: Header, num_bytes: int, num_ns: int) -> None:
        """Note what an event to the worker took, for the answer to tell."""
        self._carried(header, Transfer(sent_bytes=num_bytes, encode_ns=num_ns, hops=1))

    def received(self, header: Header, num_bytes: int, num_ns: int) -> None:
        """Note what an event of the worker's took, before `receive`."""
        self._carried(header, Transfer(received_bytes=num_bytes, decode_ns=num_ns, hops=1))

    def receive(self, header: Header, event: Any) -> None:
        """Take one event of the worker's."""
        waiting = self._sessions.get(header.session)
        match event:
            case _ if waiting is None:
                self.num_dropped += 1
            case Opened():
                waiting.credit = max(FIRST_CREDIT, event.credit)
            case Stale():
                _fail(list(_outdated(waiting, header)), StaleSession(header.epoch))
            case SessionError():
                hit = [answer for key, answer in waiting.answers.items() if key.epoch == header.epoch]
                if hit:  # the worker knows the session no more
                    del self._sessions[header.session]
                _fail(hit, from_failure(event.failure))
            case self._answer():
                key = _Key(header.epoch, header.round, header.base_length)
                answer = waiting.answers.get(key)
                if answer is None or answer.done():
                    self.num_dropped += 1
                else:
                    answer.set_result(_with(event, waiting.transfers.get(key)))
            case _:
                self.num_dropped += 1

    def _carried(self, header: Header, transfer: Transfer) -> None:
        waiting = self._sessions.get(header.session)
        key = _Key(header.epoch, header.round, header.base_length)
        if waiting is not None and key in waiting.answers:
            waiting.transfers[key] = waiting.transfers.get(key, Transfer()) + transfer


def _with(answer: Any, transfer: Transfer | None) -> Any:
    return answer if transfer is None else replace(answer, transfer=transfer)


def _outdated(waiting: _Waiting[A], header: Header) -> Iterator[asyncio.Future[A]]:
    """Whom a Stale concerns.

    An opening is stale only against a worker that stands at its epoch or a later one; a Stale below that
    answers something older, such as the second half of a Resume and its round.
    """
    for key, answer in waiting.answers.items():
        if key not in waiting.openings or header.epoch >= key.epoch:
            yield answer


def _fail(answers: Any, error: Exception) -> None:
    for answer in list(answers):
        if not answer.done():
            answer.set_exception(error)


def _settle(waiting: _Waiting[A], key: _Key, answer: asyncio.Future[A]) -> None:
    waiting.answers.pop(key, None)
    waiting.transfers.pop(key, None)
    if not answer.cancelled():
        answer.exception()  # seen, also when nobody waits any more
