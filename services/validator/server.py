"""Building and serving the validator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc

from outrider.runtime.errors import ModelError
from outrider.telemetry import NO_TRACING
from outrider.v1 import validator_pb2_grpc
from outrider.wire import validator as codec
from outrider.worker.serving import Service, serve_worker
from services.validator.role import Validating
from services.validator.servicer import SERVICE, ValidatorServicer

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.telemetry import Metrics, Tracing
    from outrider.worker.stream import Streams
    from services.validator.settings import ValidatorSettings

LOAD_ERRORS = (ModelError,)


async def serve(
    settings: ValidatorSettings,
    *,
    ready: asyncio.Future[int] | None = None,
    stop: asyncio.Event | None = None,
    tracing: Tracing = NO_TRACING,
    metrics: Metrics | None = None,
) -> None:
    """Load the target model and serve until `stop`. Raises `ModelError`, `PortUnavailable`."""

    def load(model: str) -> Runtime:
        # Not at the top: a bad flag is told at once, without waiting for torch.
        from outrider.runtime.loading import load_runtime

        return load_runtime(model, **settings.runtime_options)

    service = Service(
        name="validator",
        full_name=SERVICE,
        codec=codec,
        role_of=Validating,
        register=_register,
        load=load,
        load_errors=LOAD_ERRORS,
        drain_before_reload=True,
    )
    await serve_worker(service, settings, ready=ready, stop=stop, tracing=tracing, metrics=metrics)


def _register(server: grpc.aio.Server, streams: Streams) -> None:
    validator_pb2_grpc.add_ValidatorServiceServicer_to_server(ValidatorServicer(streams), server)
