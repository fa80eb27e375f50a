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

    def __init__(self, generator: Generator, models: ModelWatch, *, tenant_metadata: str = "") -> None:
        """`tenant_metadata` is the key of a call's metadata that names its tenant; empty: there is one."""
        self._generator = generator
        self._models = models
        self._tenant_metadata = tenant_metadata

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        metadata = context.invocation_metadata()
        events = self._generator.generate(
            inference.decode_generate(request),
            self._models.present,
            context_from_metadata(metadata),
            tenant=self._tenant_of(metadata),
        )
        async with aclosing(events):
            async for event in events:
                yield inference.encode_event(event)

    async def Purge(self, request: Any, context: Any) -> Any:
        tenant = self._tenant_of(context.invocation_metadata())
        return inference.encode_purged(await self._generator.purge(tenant))

    def _tenant_of(self, metadata: Any) -> str:
        return str(dict(metadata or ()).get(self._tenant_metadata, "")) if self._tenant_metadata else ""

    async def ListModels(self, request: Any, context: Any) -> Any:
        return inference.encode_models([self._models.present.info])
