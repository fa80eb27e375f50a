"""The scheduler process: builds everything, serves, drains."""

from __future__ import annotations

import asyncio

from outrider.rpc.server import run_server
from outrider.store import open_store
from outrider.telemetry import NO_TRACING, In, Metrics, Tracing
from outrider.v1 import scheduler_pb2_grpc
from services.scheduler.alerts import DEFAULT_RULES, Alerts, FleetPort, read_rules
from services.scheduler.fleet import Fleet
from services.scheduler.generations import Generations
from services.scheduler.servicer import SchedulerServicer
from services.scheduler.settings import SchedulerSettings

SERVICE_NAME = "outrider.v1.SchedulerService"


async def serve(
    settings: SchedulerSettings,
    *,
    ready: asyncio.Future[int] | None = None,
    stop: asyncio.Event | None = None,
    tracing: Tracing = NO_TRACING,
    metrics: Metrics | None = None,
) -> None:
    """Run a scheduler until `stop` is set; `ready` gets its port.

    It serves whether workers are there or not: requests wait a little for a validator, and `Describe` tells
    who is missing. Raises PortUnavailable.
    """
    rules = read_rules(settings.alerts) if settings.alerts else DEFAULT_RULES
    metrics = metrics or Metrics(In.SCHEDULER)
    store = open_store(settings.redis_url.get_secret_value(), metrics)
    async with store, Fleet(settings, metrics) as fleet:
        generations = Generations(settings, fleet, tracing, metrics, store)
        alerts = generations.alerts = Alerts(
            rules,
            generations.figures,
            FleetPort(fleet),
            max_depth=settings.max_k,
            tracing=tracing,
            metrics=metrics,
            notify=fleet.notify,
        )
        memory = generations.memory
        beside = [asyncio.create_task(each) for each in (alerts.run(), memory.run())]
        servicer = SchedulerServicer(generations)
        try:
            await run_server(
                settings,
                lambda server: scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(servicer, server),
                name="scheduler",
                service_names=(SERVICE_NAME,),
                stop=stop or asyncio.Event(),
                ready=ready,
                on_drain=generations.drain,
                metrics_address=metrics.address,
            )
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            memory.write()
