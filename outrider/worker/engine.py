"""The thread that owns the model: takes everything that waits, runs one forward for it, answers."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from outrider.rpc.errors import Internal, Unavailable
from outrider.runtime.reuse import PrefixCounters
from outrider.telemetry import NO_TRACING, In, Metrics
from outrider.wire.worker import Addressed, WorkerLoad
from outrider.worker.admission import Admission
from outrider.worker.desk import Desk
from outrider.worker.footprint import Footprint
from outrider.worker.forming import Former
from outrider.worker.gathering import Gathering
from outrider.worker.memory import Memory
from outrider.worker.metering import SessionCounts, WorkerMeter, read_engine
from outrider.worker.occupancy import Occupancy
from outrider.worker.registry import Registry
from outrider.worker.sharing import PrefixSharing
from outrider.worker.spans import Spans
from outrider.worker.stepping import Stepper

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.telemetry import Tracing
    from outrider.wire.worker import ModelInfo
    from outrider.worker.connection import Connection
    from outrider.worker.role import Role

T = TypeVar("T")

log = structlog.get_logger(__name__)

BLOCKED_S = 0.05
"""How long to wait for news when rounds wait but none can go on for want of KV pages."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an engine takes on."""

    # Rows of one forward, and how many of them may be prompts.
    token_budget: int
    prefill_chunk: int
    max_sessions: int
    lease_s: float
    sharing: PrefixSharing = PrefixSharing()


class Engine:
    """Public methods may be called from any thread, return at once, and act between two forwards."""

    def __init__(
        self,
        runtime: Runtime,
        role_of: Callable[[Runtime], Role],
        limits: Limits,
        *,
        tracing: Tracing = NO_TRACING,
        metrics: Metrics | None = None,
        on_crash: Callable[[], None] = lambda: None,
    ) -> None:
        """Build an engine around a loaded model; `on_crash` is called, on its thread, if it can not go on."""
        role = role_of(runtime)
        self._runtime = runtime
        self._role_of = role_of
        self._limits = limits
        self._on_crash = on_crash
        self._spans = Spans(tracing, role.span_name)
        metrics = metrics or Metrics(In.VALIDATOR)
        self.meter = WorkerMeter(metrics)
        self.meter.serve(role.info, runtime.cost)
        self._admission = Admission(limits.max_sessions)
        self._registry = Registry(runtime, limits.lease_s)
        self._desk = Desk(
            role, runtime, self._registry, self._spans, self.meter, self._admission, limits.sharing
        )
        self._gathering = Gathering()
        self._stepper = self._stepper_of(runtime)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._connections: set[Connection] = set()
        self._emptied: list[Callable[[], None]] = []
        self._going_away = False
        self._running = True
        self._blocked = False
        # What models before the present one came to.
        self._prefix_before = PrefixCounters()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        # Replaced whole by the engine's thread, read by any.
        self.info: ModelInfo = role.info
        self._counts = WorkerLoad()
        self._footprint = Footprint(role.info.device)
        self._occupancy = Occupancy()
        self.memory = Memory()
        self.sessions = SessionCounts()
        # A scheduler that is told "no pages" in its first message would not send anybody.
        self._tell_load()
        metrics.read(lambda: read_engine(self))

    @property
    def load(self) -> WorkerLoad:
        """Of this moment, also while the engine rests."""
        memory = self._footprint.read()
        return replace(
            self._counts,
            memory_bytes=memory.used_bytes,
            memory_limit_bytes=memory.limit_bytes,
            utilization=self._occupancy.share,
        )

    @property
    def lease_s(self) -> float:
        """How long sessions outlive their stream."""
        return self._limits.lease_s

    @property
    def tokenizer(self) -> Any:
        """The tokenizer files of the model that is loaded."""
        return self._runtime.tokenizer

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End after the forward under way."""
        self._inbox.put(self._stop)

    def join(self) -> None:
        """Wait for the thread to end; blocks."""
        self._thread.join()

    def connect(self, connection: Connection) -> None:
        """A stream has begun."""
        self._inbox.put(lambda: self._connections.add(connection))

    def disconnect(self, connection: Connection) -> None:
        """A stream has ended."""
        self._inbox.put(lambda: self._disconnect(connection))

    def receive(self, connection: Connection, commands: Sequence[Addressed[Any]]) -> None:
        """Commands of one message, in order."""
        arrived_ns = time.monotonic_ns()

        def apply() -> None:
            for header, command in commands:
                self._desk.receive(connection, header, command, arrived_ns)

        self._inbox.put(apply)

    def refuse_opens(self, why: str, *, going_away: bool = False) -> None:
        """Open is refused from now on; `going_away`: sessions do not outlive their streams either."""
        self._inbox.put(lambda: self._refuse_opens(why, going_away=going_away))

    def accept_opens(self) -> None:
        """Undo `refuse_opens`."""
        self._inbox.put(lambda: self._refuse_opens("", going_away=False))

    async def empty(self) -> None:
        """Wait until no session is left."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def note() -> None:
            loop.call_soon_threadsafe(done.set)

        self._inbox.put(lambda: self._emptied.append(note))
        await done.wait()

    async def swap(self, runtime: Runtime) -> ModelInfo:
        """Serve another model from the next forward on.

        Sessions go on, rebuilt from their tokens, when both models share their ids; else they and their
        streams end, so that schedulers shake hands again.
        """
        return await self.call(lambda: self._swap(runtime))

    async def call(self, act: Callable[[], T]) -> T:
        """Run `act` on the engine's thread, between two forwards, and wait for what it gives or raises."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def tell(set_outcome: Callable[[Any], None], outcome: Any) -> None:
            if not done.done():  # else whoever waited has gone
                set_outcome(outcome)

        def acting() -> None:
            try:
                outcome = act()
            except Exception as error:  # noqa: BLE001  # told to whoever asked
                loop.call_soon_threadsafe(tell, done.set_exception, error)
            else:
                loop.call_soon_threadsafe(tell, done.set_result, outcome)

        self._inbox.put(acting)
        return await done

    def _run(self) -> None:
        try:
            while self._running:
                self._take_what_waits()
                self._expire_leases()
                self._occupancy.begin()
                self._blocked = not self._stepper.step()
                self._occupancy.end()
                self._tell_load()
                self._desk.flush()
                self._tell_whether_empty()
        except Exception:
            log.exception("engine_crashed")
            for connection in self._connections:
                connection.end(Internal("the worker's engine has failed; its log has the details"))
            self._on_crash()

    def _take_what_waits(self) -> None:
        """Apply everything in the inbox; wait for it when there is nothing else to do, or for company."""
        timeout_s = self._idle_timeout_s()
        try:
            while True:
                self._inbox.get(timeout=timeout_s)() if timeout_s != 0 else self._inbox.get_nowait()()
                timeout_s = self._gathering.remaining_s(time.monotonic_ns())
        except queue.Empty:
            pass

    def _idle_timeout_s(self) -> float | None:
        waiting = any(session.rounds for session in self._registry)
        if waiting and not self._blocked:
            return self._gathering.remaining_s(time.monotonic_ns())
        expiry_ns = self._registry.next_expiry_ns()
        until_expiry_s = None if expiry_ns is None else max(1e-3, (expiry_ns - time.monotonic_ns()) / 1e9)
        return BLOCKED_S if waiting else until_expiry_s

    def _disconnect(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._going_away:
            for session in self._registry.of(connection):
                self._desk.drop(session)
        else:
            self._registry.start_lease(connection, time.monotonic_ns())

    def _expire_leases(self) -> None:
        for session in self._registry.expired(time.monotonic_ns()):
            self._desk.drop(session)

    def _refuse_opens(self, why: str, *, going_away: bool) -> None:
        if self._going_away:
            return  # for good
        self._admission.closed = why
        self._going_away = going_away
        if going_away:
            for session in [held for held in self._registry if held.connection is None]:
                self._desk.drop(session)

    def _swap(self, runtime: Runtime) -> ModelInfo:
        role = self._role_of(runtime)
        same_ids = role.info.tokenizer_fingerprint == self.info.tokenizer_fingerprint
        for session in list(self._registry):
            if not same_ids:
                self._desk.fail(
                    session, Unavailable("the worker has loaded another model", retry_after_s=0.0)
                )
                continue
            session.sequence = runtime.new_sequence(session.sequence.scope)
            session.state = role.adopt(session)
            for round_ in session.rounds:
                round_.job = None  # begun again with the new model
        self._prefix_before += self._runtime.prefix_counters
        self._runtime, self._registry.runtime = runtime, runtime
        self._desk.runtime, self._desk.role = runtime, role
        self._stepper = self._stepper_of(runtime)
        self.meter.serve(role.info, runtime.cost)
        self.info = role.info
        self._desk.flush()
        if not same_ids or not len(self._registry):
            for connection in self._connections:
                connection.end()
        return role.info

    def _stepper_of(self, runtime: Runtime) -> Stepper:
        limits = self._limits
        former = Former(runtime, self._registry, limits.token_budget, limits.prefill_chunk)
        return Stepper(runtime, self._desk, former, self._spans, self.meter, self._gathering)

    def _tell_load(self) -> None:
        self._counts = WorkerLoad(
            num_sessions=len(self._registry),
            num_waiting=sum(len(session.rounds) for session in self._registry),
            num_pages=self._runtime.num_pages,
            num_free_pages=self._runtime.num_free_pages,
        )
        self.memory = Memory.of(
            self._runtime, num_preemptions=self._registry.num_preemptions, before=self._prefix_before
        )
        self.sessions = SessionCounts.of(self._registry)

    def _tell_whether_empty(self) -> None:
        if not len(self._registry):
            emptied, self._emptied = self._emptied, []
            for note in emptied:
                note()

    def _stop(self) -> None:
        self._running = False
