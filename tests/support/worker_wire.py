"""Workers behind real servers on free ports, and streams to them over real channels."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from outrider.rpc.channel import open_channel
from outrider.telemetry import NO_TRACING, Tracing
from outrider.v1 import draft_pb2_grpc, validator_pb2_grpc
from outrider.wire import draft, validator
from outrider.wire.worker import Hello, ToWorker
from tests.support.worker_streams import TIMEOUT_S, Stream


@asynccontextmanager
async def serving(
    serve: Callable[..., Awaitable[None]], settings: Any, *, tracing: Tracing = NO_TRACING
) -> AsyncIterator[str]:
    """The address of a running `serve`; it is drained at the end."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    running = asyncio.ensure_future(serve(settings, ready=ready, stop=stop, tracing=tracing))
    outcomes: list[asyncio.Future[Any]] = [running, ready]
    await asyncio.wait(outcomes, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    try:
        yield f"{settings.host}:{ready.result()}"
    finally:
        stop.set()
        await running


@asynccontextmanager
async def channel_to(address: str) -> AsyncIterator[grpc.aio.Channel]:
    channel = open_channel(address)
    try:
        yield channel
    finally:
        await channel.close()


def target_stream(channel: grpc.aio.Channel, peer_id: bytes | None = None) -> Any:
    """A stream to a validator."""
    return _stream(validator_pb2_grpc.ValidatorServiceStub(channel).Verify, validator, peer_id)


def draft_stream(channel: grpc.aio.Channel, peer_id: bytes | None = None) -> Any:
    """A stream to a draft."""
    return _stream(draft_pb2_grpc.DraftServiceStub(channel).Draft, draft, peer_id)


@asynccontextmanager
async def _stream(method: Any, codec: Any, peer_id: bytes | None) -> AsyncIterator[Stream]:
    stream = Stream(peer_id or secrets.token_bytes(16))
    stream.requests.put_nowait(ToWorker(hello=Hello(stream.peer_id)))

    async def encoded() -> AsyncIterator[Any]:
        async for message in stream.outgoing():
            yield codec.encode_request(message)

    call = method(encoded())
    welcomed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def pump() -> None:
        error: Exception | None = None
        try:
            async for message in call:
                decoded = codec.decode_response(message)
                if decoded.welcome:
                    stream.welcome = decoded.welcome
                    welcomed.set_result(None)
                stream.take(decoded)
        except grpc.aio.AioRpcError as raised:
            error = raised
            if not welcomed.done():
                welcomed.set_exception(raised)
        finally:
            stream.finish(error)

    task = asyncio.create_task(pump())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await welcomed
        yield stream
    finally:
        call.cancel()
        await asyncio.wait([task])
