"""The rules of a worker's stream: opens, epochs, credit, stale and repeated rounds, answers."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from outrider.rpc.errors import OutriderError, ProtocolViolation, to_failure
from outrider.wire.worker import Addressed, Close, Header, Opened, Resume, SessionError, Stale
from outrider.worker.admission import check_header
from outrider.worker.failures import as_session_error
from outrider.worker.role import Job
from outrider.worker.session import Round, Session, SessionKey
from outrider.worker.sharing import PrefixSharing

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.worker.admission import Admission
    from outrider.worker.connection import Connection
    from outrider.worker.metering import WorkerMeter
    from outrider.worker.registry import Registry
    from outrider.worker.role import Role
    from outrider.worker.spans import Spans


class Desk:
    """Applies commands, one after the other, and collects what is to be said. Engine's thread only."""

    def __init__(
        self,
        role: Role,
        runtime: Runtime,
        registry: Registry,
        spans: Spans,
        meter: WorkerMeter,
        admission: Admission,
        sharing: PrefixSharing,
    ) -> None:
        self.role = role
        self.runtime = runtime
        self._registry = registry
        self._spans = spans
        self._meter = meter
        self._admission = admission
        self._sharing = sharing
        self._tickets = itertools.count(1)
        self._outbox: defaultdict[Connection, list[Addressed[Any]]] = defaultdict(list)

    def receive(self, connection: Connection, header: Header, command: Any, arrived_ns: int) -> None:
        """Apply one command. What it breaks, if anything, is its own session."""
        try:
            self._apply(connection, header, command, arrived_ns)
        except Exception as error:  # noqa: BLE001  # ends this session and no other
            session = self._registry.get(SessionKey(connection.peer_id, header.session))
            if session and not session.finished:
                self.fail(session, error)
            else:
                self._send_error(connection, header, as_session_error(error))

    def active_rounds(self) -> list[Round]:
        """The oldest unanswered round of each session, oldest arrival first, each with its job under way."""
        for session in list(self._registry):
            while session.rounds and session.rounds[0].job is None:
                self._start(session.rounds[0])
        rounds = [session.rounds[0] for session in self._registry if session.rounds]
        return sorted(rounds, key=lambda round_: round_.arrived_ns)

    def answer(self, round_: Round, event: Any) -> None:
        """Answer a round; an answer with a finish reason ends its session."""
        now_ns = time.monotonic_ns()
        session = round_.session
        session.rounds.remove(round_)
        session.idle_since_ns = now_ns
        timings = round_.timings(now_ns)
        event = replace(event, timings=timings, model_version=self.role.info.model_version)
        session.answered = Addressed(round_.answer_header(), event)
        self._send(session.connection, *session.answered)
        self._meter.answered(timings)
        self._spans.answered(round_, timings, self.role.describe(round_, event), now_ns)
        if getattr(event, "finish_reason", None) is not None:
            self._discard_rounds(session)
            self._registry.finish(session)

    def fail(self, session: Session, error: Exception) -> None:
        """End one session with its one terminal error."""
        known = as_session_error(error)
        header = Header(session.key.session_id, session.epoch, 0, session.length)
        if session.rounds:
            round_ = session.rounds.popleft()
            header = round_.answer_header()
            self._spans.failed(round_, known.reason)
        self._send_error(session.connection, header, known)
        self.drop(session)

    def drop(self, session: Session) -> None:
        """Forget a session, its queued rounds included."""
        self._discard_rounds(session, abandon=False)
        self._registry.drop(session)

    def flush(self) -> None:
        """Hand all that was said to the streams: what is ready together travels together."""
        outbox, self._outbox = self._outbox, defaultdict(list)
        for connection, events in outbox.items():
            connection.deliver(events)

    def _apply(self, connection: Connection, header: Header, command: Any, arrived_ns: int) -> None:
        match command:
            case Close():
                self._close(connection, header)
            case Resume():
                self._resume(connection, header)
            case self.role.opening():
                self._open(connection, header, command, arrived_ns)
            case _:
                self._round(connection, header, command, arrived_ns)

    def _open(self, connection: Connection, header: Header, command: Any, arrived_ns: int) -> None:
        key = SessionKey(connection.peer_id, header.session)
        held = self._registry.get(key)
        if held and header.epoch <= held.epoch:
            self._stale(connection, header, held)
            return
        if held:
            self.drop(held)  # also if the new one is refused: the sender believes in it no more
        try:
            check_header(header)
            self._admission.check(len(self._registry))
            state = self.role.open(command)
            scope = self._sharing.scope_of(command)
            self._admission.check_memory(
                self._registry, self.runtime, scope, command.tokens, self.role.info.context_length
            )
        except Exception as error:  # noqa: BLE001  # refused, with the reason
            self._send_error(connection, header, as_session_error(error))
            return
        session = Session(
            key=key,
            connection=connection,
            epoch=header.epoch,
            ticket=next(self._tickets),
            tokens=list(command.tokens),
            prompt_length=command.prompt_length,
            sequence=self.runtime.new_sequence(scope),
            state=state,
            rounds=deque(),
            previous_length=len(command.tokens),
            idle_since_ns=arrived_ns,
        )
        self._registry.add(session)
        self._send(connection, replace(header, base_length=session.length), Opened(self.role.credit))
        if command.first is not None:
            self._round(connection, header, command.first, arrived_ns)

    def _resume(self, connection: Connection, header: Header) -> None:
        session = self._registry.get(SessionKey(connection.peer_id, header.session))
        if not session or header.epoch <= session.epoch or not session.agrees_with(header.base_length):
            self._stale(connection, header, session)
            return
        # Rounds of the older epoch are void; the scheduler sends again what it still wants.
        self._discard_rounds(session)
        session.epoch = header.epoch
        self._registry.take_over(session, connection)

    def _close(self, connection: Connection, header: Header) -> None:
        session = self._registry.get(SessionKey(connection.peer_id, header.session))
        if session and header.epoch >= session.epoch:
            self.drop(session)

    def _round(self, connection: Connection, header: Header, ask: Any, arrived_ns: int) -> None:
        session = self._registry.get(SessionKey(connection.peer_id, header.session))
        if session and header.epoch < session.epoch:
            return
        if not session or header.epoch != session.epoch or session.connection is not connection:
            self._stale(connection, header, session)
        elif session.answered and _same_round(header, session.answered.header):
            self._send(connection, header, session.answered.event)
        elif session.finished:
            self._stale(connection, header, session)
        elif any(header.round == waiting.header.round for waiting in session.rounds):
            pass  # it was sent again, and is on its way
        elif len(session.rounds) >= self.role.credit:
            message = f"more than {self.role.credit} rounds are unanswered, the credit that Opened granted"
            self.fail(session, ProtocolViolation(message))
        else:
            self._accept(Round(session, header, ask, arrived_ns))

    def _accept(self, round_: Round) -> None:
        session = round_.session
        if self.role.overtaken is not None:
            self._give_up_rounds(session, self.role.overtaken)
        if self.role.arrive(session, round_):
            if not session.rounds:
                session.away_ns = round_.arrived_ns - session.idle_since_ns
            session.rounds.append(round_)
            self._spans.begin(round_, self.role.info)
        else:
            self._stale(session.connection, round_.header, session)

    def _start(self, round_: Round) -> None:
        session = round_.session
        try:
            started = self.role.start(session, round_)
        except Exception as error:  # noqa: BLE001  # ends this session and no other
            self.fail(session, error)
            return
        if isinstance(started, Stale):
            session.rounds.remove(round_)
            self._spans.discarded(round_)
            self._stale(session.connection, round_.answer_header(), session)
        elif isinstance(started, Job):
            round_.job = started
        else:
            self.answer(round_, started)

    def _give_up_rounds(self, session: Session, answer: Any) -> None:
        for round_ in list(session.rounds):
            if round_.job:
                round_.job.abandon()
            self.answer(round_, answer)

    def _discard_rounds(self, session: Session, *, abandon: bool = True) -> None:
        while session.rounds:
            round_ = session.rounds.popleft()
            if round_.job and abandon:
                round_.job.abandon()
            self._spans.discarded(round_)

    def _stale(self, connection: Connection | None, header: Header, session: Session | None) -> None:
        held = session is not None and not session.finished
        epoch, length = (session.epoch, session.length) if session and held else (0, 0)
        self._send(connection, replace(header, epoch=epoch, base_length=length), Stale())

    def _send_error(self, connection: Connection | None, header: Header, error: OutriderError) -> None:
        self._send(connection, header, SessionError(to_failure(error)))

    def _send(self, connection: Connection | None, header: Header, event: Any) -> None:
        # Nobody to tell while the lease runs: the answer waits in the session.
        if connection is not None:
            self._outbox[connection].append(Addressed(header, event))


def _same_round(header: Header, answered: Header) -> bool:
    return (header.round, header.base_length) == (answered.round, answered.base_length)
