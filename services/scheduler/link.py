"""One worker behind its stream: connected for as long as the scheduler lives."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

import grpc

from outrider.rpc.channel import RECONNECT_MAX_S, RECONNECT_MIN_S, open_channel
from outrider.rpc.errors import (
    FailedPrecondition,
    OutriderError,
    ProtocolViolation,
    Unavailable,
    error_from_rpc,
)
from outrider.telemetry import StreamMeter, get_logger
from outrider.wire.state import WorkerState, WorkerStatus
from outrider.wire.tensors import MalformedMessage
from outrider.wire.worker import (
    MINIMUM_REVISION,
    REVISION,
    Addressed,
    Close,
    FromWorker,
    Header,
    Hello,
    ModelInfo,
    Resume,
    SessionError,
    ToWorker,
    Welcome,
)
from services.scheduler.acquaintance import Acquaintance
from services.scheduler.health import Health
from services.scheduler.latency import Latency
from services.scheduler.placement import Load
from services.scheduler.ports import PeerLost
from services.scheduler.questions import Questions
from services.scheduler.roles import Role

log = get_logger(__name__)

C = TypeVar("C")  # the command that asks for a round
A = TypeVar("A")  # the answer to it

HANDSHAKE_S = 10.0
_CALL_ENDED = (grpc.aio.AioRpcError, asyncio.InvalidStateError)
MAX_COMMANDS = 32
"""Commands of one message: so many openings of the longest prompts stay below the message limit."""


class StreamLink(Generic[C, A]):
    """The connection to one worker; serves as `ValidatorPort` or `DraftPort`.

    Args:
        address: host:port.
        role: of the worker.
        peer_id: 16 bytes, the same for all links of this process.
        admit: says why a worker that was reached does not fit, or "".
        notify: called when the status has changed.
        wait_s: the longest wait for an answer, where one goes on without.
        meter: of all streams to workers of the role.
    """

    def __init__(
        self,
        address: str,
        role: Role[A],
        *,
        peer_id: bytes,
        admit: Callable[[StreamLink[C, A]], Awaitable[str]],
        notify: Callable[[], None],
        wait_s: float,
        meter: StreamMeter,
    ) -> None:
        self.address = address
        self.status = WorkerStatus.UNREACHABLE
        self.reason = "not connected yet"
        self.channel = open_channel(address)
        self._worker = Acquaintance(
            address, self.channel, wait_s=wait_s, changed=notify, unlike=self.reconnect
        )
        self._role = role
        self._peer_id = peer_id
        self._admit = admit
        self._notify = notify
        self._meter = meter
        self._questions: Questions[A] = Questions(role.answer)
        self._outbox: list[Addressed[Any]] = []
        self._wake = asyncio.Event()
        self._again = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def info(self) -> ModelInfo:
        """What the worker has loaded; raises PeerLost before the first Welcome."""
        return self._worker.known

    @property
    def latency(self) -> Latency:
        """How long answers take."""
        return self._worker.latency

    @property
    def health(self) -> Health:
        """Whether new sessions should rather go elsewhere."""
        return self._worker.health

    @property
    def ready(self) -> bool:
        """Whether new sessions may be opened here."""
        return self.status is WorkerStatus.READY

    @property
    def draining(self) -> bool:
        """Whether it said GoAway."""
        return self.status is WorkerStatus.DRAINING

    @property
    def placement(self) -> Load:
        """What speaks against it when a session looks for a worker."""
        return self._worker.placement(self._questions.num_sessions)

    @property
    def num_dropped(self) -> int:
        """Answers that nobody waited for: late, repeated, of an unknown session or another epoch."""
        return self._questions.num_dropped

    @property
    def state(self) -> WorkerState:
        """For `Describe`."""
        worker = self._worker
        return WorkerState(
            self.address, self.status, self.reason or worker.left_out, worker.info, worker.load
        )

    def ask(self, header: Header, command: C, *, resume: bool = False) -> asyncio.Future[A]:
        """As in the ports. Raises PeerLost."""
        if self.status not in (WorkerStatus.READY, WorkerStatus.DRAINING):
            raise PeerLost(self.address)
        answer = self._questions.ask(header, opens=isinstance(command, self._role.opening))
        if resume:
            self._send(header, Resume())
        self._send(header, command)
        return answer

    def room(self, session: bytes) -> int:
        """Rounds of the session that may be asked now: its credit less what is unanswered."""
        return self._questions.room(session)

    def close(self, header: Header) -> None:
        """As in the ports."""
        self._questions.forget(header.session)
        if self.status in (WorkerStatus.READY, WorkerStatus.DRAINING):
            self._send(header, Close())

    async def run(self) -> None:
        """Connect, converse, and begin again, until cancelled."""
        pause_s = RECONNECT_MIN_S
        try:
            while True:
                ending = await self._converse()
                if self._questions.num_sessions and self.ready and not self._again.is_set():
                    self.health.failed(f"its streams end: {ending[1]}")
                self._set(*ending)
                if self._questions.reset():  # it had been reached: try again soon
                    pause_s = RECONNECT_MIN_S
                await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))  # noqa: S311  # so that links don't march in step
                pause_s = min(2 * pause_s, RECONNECT_MAX_S)
        finally:
            self._worker.close()
            await self.channel.close()

    def reconnect(self) -> None:
        """End the present stream and begin another, so that the worker is judged anew."""
        self._again.set()

    async def flush(self, timeout_s: float) -> None:
        """Wait until all that was said is written, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            pass

    async def _converse(self) -> tuple[WorkerStatus, str]:
        """One stream from Hello to its end; why it ended."""
        self._again.clear()  # before the worker is judged: what is asked for from here on counts
        call = self._role.method(self.channel)()
        try:
            await self._greet(call)
            await self._until_one_ends(self._read(call), self._write(call), self._asked_to_reconnect())
        except Exception as error:  # noqa: BLE001  # whatever it is, the link begins again
            return self._ended_by(error)
        finally:
            call.cancel()
            self._outbox.clear()
            self._idle.set()
        return WorkerStatus.UNREACHABLE, "the worker ended the stream"

    def _ended_by(self, error: Exception) -> tuple[WorkerStatus, str]:
        """What an error of the conversation says of the worker."""
        if isinstance(error, grpc.aio.AioRpcError):
            error = error_from_rpc(error)
        match error:
            case FailedPrecondition():
                return WorkerStatus.REFUSED, error.message
            case OutriderError():
                return WorkerStatus.UNREACHABLE, error.message
            case MalformedMessage():
                log.warning("malformed_message", address=self.address, problem=str(error))
                return WorkerStatus.UNREACHABLE, f"it sent a malformed message: {error}"
            case TimeoutError():
                return WorkerStatus.UNREACHABLE, f"no Welcome within {HANDSHAKE_S:g} s"
            case _:
                log.error("link_failed", address=self.address, exc_info=error)
                return WorkerStatus.UNREACHABLE, "internal error of the scheduler; its log has the details"

    async def _greet(self, call: Any) -> None:
        """Hello, Welcome, and whether the worker fits."""
        async with asyncio.timeout(HANDSHAKE_S):
            await call.write(self._encoded(ToWorker(hello=Hello(self._peer_id))))
            message = await self._next(call)
        if message is None:
            raise Unavailable("the worker ended the stream")
        if message.welcome is None:
            raise ProtocolViolation("the first message has no Welcome")
        _check_revision(message.welcome)
        self._worker.info = message.welcome.info
        self._worker.told(message.load, 0)
        why = await self._admit(self)
        if why:
            raise FailedPrecondition(why)
        self._questions.begin()
        self._set(WorkerStatus.READY, "")
        log.info("worker_ready", role=self._role.name, address=self.address, model=self.info.model)

    async def _read(self, call: Any) -> None:
        while (message := await self._next(call)) is not None:
            self._worker.told(message.load, self._questions.num_sessions)
            for header, event in message.events:
                self._questions.receive(header, event)
                self._judge(event)
            if message.go_away is not None:
                self._set(WorkerStatus.DRAINING, "the worker is shutting down")

    def _judge(self, event: Any) -> None:
        """What an event says of the worker."""
        if isinstance(event, self._role.answer):
            self._worker.answered(getattr(event, "model_version", ""))
        elif isinstance(event, SessionError):
            self._worker.failed(event)

    async def _next(self, call: Any) -> FromWorker[Any] | None:
        message = await call.read()
        if message is grpc.aio.EOF:
            return None
        started_ns = time.monotonic_ns()
        decoded = self._role.decode(message, self._questions.received)
        self._meter.decoded(message, started_ns)
        return decoded

    async def _write(self, call: Any) -> None:
        """Write what is ready, together."""
        while True:
            if not self._outbox:
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
            commands, self._outbox = self._outbox[:MAX_COMMANDS], self._outbox[MAX_COMMANDS:]
            await call.write(self._encoded(ToWorker(commands=commands)))

    def _encoded(self, message: ToWorker[Any]) -> Any:
        started_ns = time.monotonic_ns()
        encoded = self._role.encode(message, self._questions.sent)
        self._meter.encoded(encoded, started_ns)
        return encoded

    async def _asked_to_reconnect(self) -> None:
        await self._again.wait()

    async def _until_one_ends(
        self, reading: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]
    ) -> None:
        tasks = [asyncio.ensure_future(part) for part in (reading, *others)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            errors = [task.exception() for task in done if task is not tasks[0]]
            if tasks[0] not in done and any(isinstance(error, _CALL_ENDED) for error in errors):
                # A write fails because the call has ended, and only the reader learns how.
                await tasks[0]
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _send(self, header: Header, command: Any) -> None:
        self._outbox.append(Addressed(header, command))
        self._idle.clear()
        self._wake.set()

    def _set(self, status: WorkerStatus, reason: str) -> None:
        if (status, reason) != (self.status, self.reason):
            log.info("worker_status", address=self.address, status=status.name.lower(), reason=reason)
            self.status, self.reason = status, reason
            self._notify()


def _check_revision(welcome: Welcome) -> None:
    if welcome.minimum_revision > REVISION or welcome.revision < MINIMUM_REVISION:
        raise FailedPrecondition(
            f"the worker speaks protocol revisions {welcome.minimum_revision} to {welcome.revision}, this "
            f"scheduler {MINIMUM_REVISION} to {REVISION}; upgrade the older of the two"
        )
