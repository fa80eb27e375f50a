"""InferenceService: decode, call, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from gateway.generation import Generator
from gateway.watch import ModelWatch
from outrider.telemetry import context_from_metadata
from outrider.v1 import inference_pb2_grpc
from outrider.wire import inference


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Generation on text, for clients."""

    def __init__(self, generator: Generator, models: ModelWatch) -> None:
        self._generator = generator
        self._models = models

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        parent = context_from_metadata(context.invocation_metadata())
        events = self._generator.generate(inference.decode_generate(request), self._models.present, parent)
        async with aclosing(events):
            async for event in events:
                yield inference.encode_event(event)

    async def ListModels(self, request: Any, context: Any) -> Any:
        return inference.encode_models([self._models.present.info])
