"""Running one process: settings, logs, traces, the event loop, signals, and a telling exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from outrider.rpc.server import check_address
from outrider.rpc.settings import ServerSettings, read_settings
from outrider.rpc.startup import PortUnavailable, StartupError
from outrider.telemetry import (
    NO_TRACING,
    BadLogLevel,
    BadTracingVariable,
    In,
    Metrics,
    MetricsServer,
    Tracing,
    configure_logging,
    configure_tracing,
)

S_contra = TypeVar("S_contra", bound=ServerSettings, contravariant=True)
S = TypeVar("S", bound=ServerSettings)

EXIT_USAGE = 2
"""The start failed for a reason that one line explains."""


class Serve(Protocol[S_contra]):
    """A process's `serve`: builds everything, sets `ready` to its port, returns after `stop` and a drain."""

    async def __call__(
        self,
        settings: S_contra,
        *,
        ready: asyncio.Future[int] | None = None,
        stop: asyncio.Event | None = None,
        tracing: Tracing = NO_TRACING,
        metrics: Metrics | None = None,
    ) -> None: ...


def run_process(
    service: str,
    kind: type[S],
    serve: Serve[S],
    *,
    arguments: list[str] | None = None,
    expected_errors: tuple[type[Exception], ...] = (),
) -> int:
    """The body of a process's `main`: returns its exit code.

    SIGTERM and SIGINT drain; a second one, or one that comes before the process serves, ends it at once.

    Args:
        service: name in logs and traces, such as "draft".
        kind: its settings class.
        serve: its `serve`.
        arguments: command line, `sys.argv[1:]` unless given.
        expected_errors: exceptions, beside `StartupError`, whose message explains a failed start in one line.

    """
    explained: tuple[type[Exception], ...] = (
        StartupError,
        BadLogLevel,
        BadTracingVariable,
        *expected_errors,
    )
    try:
        settings = read_settings(kind, sys.argv[1:] if arguments is None else arguments)
        configure_logging(service)
        # Told at once, and not when a model has been loaded for a minute.
        check_address(settings.host, settings.port)
        metrics = Metrics(In(service))
        tracing = configure_tracing(service, f"{settings.host}:{settings.port}:{os.getpid()}")
        try:
            with (
                _serving(metrics, settings),
                asyncio.Runner(loop_factory=_loop_factory()) as runner,
            ):
                runner.run(_until_signalled(settings, serve, tracing, metrics))
        finally:
            tracing.shutdown()
    except explained as error:
        print(f"outrider-{service}: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201  # for a person
        return EXIT_USAGE
    return 0


def _serving(metrics: Metrics, settings: ServerSettings) -> AbstractContextManager[object]:
    """The server of /metrics, unless it is off. Raises PortUnavailable."""
    if settings.metrics_port is None:
        return nullcontext()
    try:
        return MetricsServer(metrics, settings.host, settings.metrics_port)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        setting = "--metrics-port (OUTRIDER_METRICS_PORT), 0 for any free one, or off"
        raise PortUnavailable(settings.host, settings.metrics_port, why, setting) from error


async def _until_signalled(settings: S, serve: Serve[S], tracing: Tracing, metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    ready: asyncio.Future[int] = loop.create_future()

    def on_signal(number: signal.Signals) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        stop.set()
        if not ready.done():  # nothing is served yet: nothing to drain, and a load can not be interrupted
            os.kill(os.getpid(), number)

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, on_signal, each)
    await serve(settings, ready=ready, stop=stop, tracing=tracing, metrics=metrics)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop of uvloop when that is installed: it shortens the tail of a stream's round trip."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
