"""ValidatorService: the stream on which drafted tokens are checked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from outrider.v1 import validator_pb2_grpc

if TYPE_CHECKING:
    from outrider.worker.stream import Streams

SERVICE = "outrider.v1.ValidatorService"


class ValidatorServicer(validator_pb2_grpc.ValidatorServiceServicer):
    """Commands in, verdicts out."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def Verify(self, request_iterator: AsyncIterator[Any], context: Any) -> AsyncGenerator[Any, None]:
        """One scheduler's stream."""
        async with aclosing(self._streams.serve(request_iterator)) as responses:
            async for response in responses:
                yield response
