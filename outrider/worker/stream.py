"""Both workers' streaming method: handshake, one task that reads, and a generator that writes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any

from outrider.rpc.errors import FailedPrecondition, InvalidArgument
from outrider.wire.worker import MINIMUM_REVISION, REVISION, FromWorker, Hello, Welcome, WorkerLoad
from outrider.worker.admission import ID_BYTES
from outrider.worker.connection import Connection

if TYPE_CHECKING:
    from outrider.telemetry import StreamMeter
    from outrider.wire.worker import ToWorker
    from outrider.worker.engine import Engine
    from outrider.worker.role import Codec

LOAD_EVERY_S = 1.0
"""How often a load that has changed is told on streams that carry nothing else."""


class Streams:
    """All open streams of a worker. Event loop only."""

    def __init__(self, engine: Engine, codec: Codec, meter: StreamMeter | None = None) -> None:
        self._engine = engine
        self._meter = meter
        self._codec = codec
        self._open: set[Connection] = set()
        # By the loop's clock; set by `drain`.
        self._ends_at: float | None = None

    async def serve(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """One stream: yields encoded responses until the peer or the worker ends it.

        Raises:
            FailedPrecondition: the revisions do not overlap.
            InvalidArgument: the first message has no proper Hello.
            MalformedMessage: a message breaks the contract.
        """
        first = await anext(requests, None)
        if first is None:
            return
        message = self._decoded(first)
        connection = Connection(_checked(message.hello).peer_id)
        welcome = Welcome(info=self._engine.info, lease_ms=round(self._engine.lease_s * 1000))
        self._open.add(connection)
        self._engine.connect(connection)
        if self._ends_at is not None:
            self._announce_end(connection)
        reader = asyncio.create_task(self._read(requests, connection))
        try:
            yield self._encoded(FromWorker(welcome=welcome, load=self._load_for(connection)))
            if message.commands:
                self._engine.receive(connection, message.commands)
            async for outgoing in connection.messages():
                yield self._encoded(
                    FromWorker(outgoing.events, go_away=outgoing.go_away, load=self._load_for(connection))
                )
        finally:
            self._open.discard(connection)
            self._engine.disconnect(connection)
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def tell_loads(self) -> None:
        """Tell the load where it has changed since it was last told, until cancelled.

        Each message carries it, but a scheduler that has no session here hears of others' in no other way,
        nor one whose last session has ended of the rest that followed.
        """
        while True:
            await asyncio.sleep(LOAD_EVERY_S)
            load = _coarse(self._engine.load)
            for connection in self._open:
                if _coarse(connection.told) != load:
                    connection.tell_load()

    async def drain(self, grace_s: float) -> None:
        """Announce the end on every stream, refuse Open, and end the streams after at most `grace_s`."""
        self._engine.refuse_opens("the worker is shutting down", going_away=True)
        self._ends_at = asyncio.get_running_loop().time() + grace_s
        for connection in self._open:
            self._announce_end(connection)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._engine.empty()
        for connection in self._open:
            connection.end()

    def _load_for(self, connection: Connection) -> WorkerLoad:
        connection.told = self._engine.load
        return connection.told

    def _decoded(self, message: Any) -> ToWorker[Any]:
        started_ns = time.monotonic_ns()
        decoded = self._codec.decode_request(message)
        if self._meter is not None:
            self._meter.decoded(message, started_ns)
        return decoded

    def _encoded(self, message: FromWorker[Any]) -> Any:
        started_ns = time.monotonic_ns()
        encoded = self._codec.encode_response(message)
        if self._meter is not None:
            self._meter.encoded(encoded, started_ns)
        return encoded

    def _announce_end(self, connection: Connection) -> None:
        left_s = max(0.0, (self._ends_at or 0.0) - asyncio.get_running_loop().time())
        connection.announce_end(round(left_s * 1000))

    async def _read(self, requests: AsyncIterator[Any], connection: Connection) -> None:
        """Hand commands to the engine as they come; never waits for it."""
        try:
            async for request in requests:
                self._engine.receive(connection, self._decoded(request).commands)
        except Exception as error:  # noqa: BLE001  # the stream ends with it
            connection.end(error)
        else:
            connection.end()


def _coarse(load: WorkerLoad) -> tuple[int, ...]:
    """What differs when it matters: tenths of utilisation, of which 0 is rest, and 64ths of the memory."""
    return (
        load.num_sessions,
        load.num_waiting,
        load.num_free_pages,
        math.ceil(10 * (load.utilization or 0.0)),
        64 * load.memory_bytes // load.memory_limit_bytes if load.memory_limit_bytes else 0,
    )


def _checked(hello: Hello | None) -> Hello:
    if hello is None:
        raise InvalidArgument("the first message of a stream must carry hello", field="hello")
    if len(hello.peer_id) != ID_BYTES:
        raise InvalidArgument(
            f"hello.peer_id has {len(hello.peer_id)} bytes; give 16 random ones", field="hello.peer_id"
        )
    if hello.minimum_revision > REVISION or hello.revision < MINIMUM_REVISION:
        raise FailedPrecondition(
            f"the scheduler speaks protocol revisions {hello.minimum_revision} to {hello.revision}, "
            f"this worker {MINIMUM_REVISION} to {REVISION}; upgrade the older of the two",
            field="hello.revision",
        )
    return hello
