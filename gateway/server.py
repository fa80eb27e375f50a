"""The gateway as a process: waits for a model, serves, drains."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc

from gateway.generation import Generator
from gateway.metering import GatewayMeter
from gateway.schedulers import Schedulers
from gateway.servicer import InferenceServicer
from gateway.settings import GatewaySettings
from gateway.watch import ModelWatch
from outrider.rpc.server import run_server
from outrider.telemetry import NO_TRACING, In, Metrics, Tracing
from outrider.v1 import inference_pb2_grpc

SERVICE_NAME = "outrider.v1.InferenceService"


async def serve(
    settings: GatewaySettings,
    *,
    ready: asyncio.Future[int] | None = None,
    stop: asyncio.Event | None = None,
    tracing: Tracing = NO_TRACING,
    metrics: Metrics | None = None,
) -> None:
    """Serve until `stop` is set; the port opens once a validator's tokenizer is here.

    Raises PortUnavailable.
    """
    stop = stop or asyncio.Event()
    metrics = metrics or Metrics(In.GATEWAY)
    schedulers = Schedulers(settings.scheduler)
    models = ModelWatch(schedulers)
    watching = asyncio.create_task(models.run_forever())
    try:
        if not await _first(watching, models, stop):
            return
        generator = Generator(
            schedulers,
            tracing,
            max_prompt_bytes=settings.max_prompt_bytes,
            meter=GatewayMeter(metrics),
        )

        def register(server: grpc.aio.Server) -> None:
            inference_pb2_grpc.add_InferenceServiceServicer_to_server(
                InferenceServicer(generator, models, tenant_metadata=settings.tenant_metadata), server
            )

        await run_server(
            settings,
            register,
            name="gateway",
            service_names=[SERVICE_NAME],
            stop=stop,
            ready=ready,
            metrics_address=metrics.address,
        )
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await schedulers.close()


async def _first(watching: asyncio.Task[None], models: ModelWatch, stop: asyncio.Event) -> bool:
    """Wait for the first model; False when told to stop before. Raises what ended the watch itself."""
    waits = {asyncio.ensure_future(models.first()), asyncio.ensure_future(stop.wait())}
    try:
        await asyncio.wait({*waits, watching}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    if watching.done():
        watching.result()
    return not stop.is_set()
