"""SchedulerService over gRPC: decode, call, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from outrider.telemetry import context_from_metadata
from outrider.v1 import scheduler_pb2_grpc
from outrider.wire import scheduler as wire
from services.scheduler.generations import Generations


class SchedulerServicer(scheduler_pb2_grpc.SchedulerServiceServicer):
    """The methods of the contract; errors are translated by the server's interceptor."""

    def __init__(self, generations: Generations) -> None:
        self._generations = generations

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        parent = context_from_metadata(context.invocation_metadata())
        async with aclosing(self._generations.generate(wire.decode_generate(request), parent)) as events:
            async for event in events:
                yield wire.encode_event(event)

    async def Finish(self, request: Any, context: Any) -> Any:
        return wire.encode_finish_response(self._generations.finish(wire.decode_finish(request)))

    async def Purge(self, request: Any, context: Any) -> Any:
        return wire.encode_purged(await self._generations.purge(wire.decode_purge(request)))

    async def Describe(self, request: Any, context: Any) -> Any:
        return wire.encode_describe(self._generations.state)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async with aclosing(self._generations.watch()) as states:
            async for state in states:
                yield wire.encode_watch(state)
