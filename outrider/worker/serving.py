"""One worker process from its settings to its drain; each service brings its role and its servicer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import structlog

from outrider.rpc.server import run_server
from outrider.telemetry import In, Metrics, StreamMeter
from outrider.telemetry.gpu import gpu_readings
from outrider.v1 import worker_pb2_grpc
from outrider.worker.brief_thread import in_brief_thread
from outrider.worker.engine import Engine
from outrider.worker.reloading import Reloading
from outrider.worker.stream import Streams
from outrider.worker.worker_servicer import SERVICE as WORKER_SERVICE
from outrider.worker.worker_servicer import WorkerServicer

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.telemetry import Tracing
    from outrider.wire.worker import ModelInfo
    from outrider.worker.metering import WorkerMeter
    from outrider.worker.role import Codec, Role
    from outrider.worker.settings import WorkerSettings

log = structlog.get_logger(__name__)


class EngineCrashed(RuntimeError):
    """The engine's thread has ended by an error; the process must end too, so that it is started again."""


@dataclass(frozen=True, slots=True)
class Service:
    """What one kind of worker is made of."""

    name: str
    # Full name of the streaming service.
    full_name: str
    codec: Codec
    role_of: Callable[[Runtime], Role]
    # Adds the streaming servicer.
    register: Callable[[grpc.aio.Server, Streams], None]
    # Loads a model by name; blocks. Raises one of load_errors for one that can not be served.
    load: Callable[[str], Runtime]
    load_errors: tuple[type[Exception], ...]
    # Sessions are pinned to the weights: a reload lets them end first.
    drain_before_reload: bool


async def serve_worker(
    service: Service,
    settings: WorkerSettings,
    *,
    ready: asyncio.Future[int] | None,
    stop: asyncio.Event | None,
    tracing: Tracing,
    metrics: Metrics | None = None,
) -> None:
    """Load the model, start the engine, serve until `stop` is set, drain.

    Raises:
        PortUnavailable: the address can not be had.
        EngineCrashed: the engine could not go on.
        Exception: what `service.load` raises.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    crashed = False

    def on_crash() -> None:
        nonlocal crashed
        crashed = True
        loop.call_soon_threadsafe(stop.set)

    runtime = await in_brief_thread(lambda: service.load(settings.model))
    metrics = metrics or Metrics(In(service.name))
    engine = Engine(
        runtime, service.role_of, settings.limits, tracing=tracing, metrics=metrics, on_crash=on_crash
    )
    if metrics.address:
        info = runtime.info
        await in_brief_thread(lambda: _meter_device(engine.meter, metrics, info))
    del runtime  # the engine's alone, so that a reload can free it
    streams = Streams(engine, service.codec, StreamMeter(metrics, "scheduler"))
    reloading = Reloading(
        engine,
        service.load,
        model=settings.model,
        drain_first=service.drain_before_reload,
        load_errors=service.load_errors,
    )

    def register(server: grpc.aio.Server) -> None:
        service.register(server, streams)
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(engine, reloading), server)

    async def drain() -> None:
        if not crashed:
            await streams.drain(settings.grace_s)

    info = engine.info
    log.info("model_loaded", model=info.model, numerics_id=info.numerics_id, exactness=info.exactness.name)
    engine.start()
    telling = asyncio.create_task(streams.tell_loads())
    try:
        await run_server(
            settings,
            register,
            name=service.name,
            service_names=[service.full_name, WORKER_SERVICE],
            stop=stop,
            ready=ready,
            on_drain=drain,
            metrics_address=metrics.address,
        )
    finally:
        telling.cancel()
        engine.stop()
        await asyncio.to_thread(engine.join)
    if crashed:
        raise EngineCrashed("the engine has failed; the log has its traceback")


def _meter_device(meter: WorkerMeter, metrics: Metrics, info: ModelInfo) -> None:
    """Measure what the device can do, which takes under a second, and read its own counters from now on."""
    # Not at the top: only a process that has loaded a model needs torch.
    from outrider.runtime.peak import measure_peak

    meter.peak = measure_peak(info.device, info.dtype)
    if (readings := gpu_readings(info.device)) is not None:
        metrics.read(readings)
