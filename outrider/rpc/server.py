"""Listening: health, reflection, the ready file, and the drain, alike in every process."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from outrider.rpc.interceptors import ErrorInterceptor
from outrider.rpc.limits import KEEPALIVE_TIME_S, MAX_MESSAGE_BYTES
from outrider.rpc.settings import ServerSettings
from outrider.rpc.startup import PortUnavailable
from outrider.telemetry import get_logger

log = get_logger(__name__)

_OPTIONS = (
    # With it on, a second process would share the port in silence and take every other call.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_permit_without_calls", 1),
    # Below our clients' interval, else their keepalives end in GOAWAY.
    ("grpc.http2.min_ping_interval_without_data_ms", round(KEEPALIVE_TIME_S * 1000 / 2)),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", round(KEEPALIVE_TIME_S * 1000 / 2)),
)


async def run_server(
    settings: ServerSettings,
    register: Callable[[grpc.aio.Server], None],
    *,
    name: str,
    service_names: Sequence[str],
    stop: asyncio.Event,
    ready: asyncio.Future[int] | None = None,
    on_drain: Callable[[], Awaitable[None]] | None = None,
    metrics_address: str = "",
) -> None:
    """Serve until `stop` is set, then drain and return.

    Call it when the process can answer: the port opens, health says SERVING for "" and every service, the
    ready file is written and `ready` gets the port, in this order. At the stop health says NOT_SERVING,
    `on_drain` runs (open streams are told), and open calls get `settings.grace_s` to end.

    Args:
        settings: where to listen, and how long a stop may take.
        register: adds the servicers.
        name: the process's name in its ready file, such as "draft".
        service_names: full names, such as "outrider.v1.DraftService".
        stop: set by whoever wants the process to end.
        ready: gets the port that was bound.
        on_drain: run once at the stop, before calls are cut.
        metrics_address: where /metrics is served, for the ready file and the log; empty when it is not.

    Raises:
        PortUnavailable: the address can not be had.

    """
    server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=_OPTIONS)
    register(server)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    if settings.reflection:
        names = (*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    port = _bind(server, settings.host, settings.port)
    await server.start()
    try:
        for service in ("", *service_names):
            await checks.set(service, health_pb2.HealthCheckResponse.SERVING)
        address = f"{settings.host}:{port}"
        if settings.ready_file:
            ready_to_say: dict[str, object] = {"address": address, "pid": os.getpid(), "service": name}
            if metrics_address:
                ready_to_say["metrics"] = metrics_address
            _write_ready_file(settings.ready_file, ready_to_say)
        if ready and not ready.done():
            ready.set_result(port)
        log.info("serving", service=name, address=address, metrics=metrics_address or "off")
        if not is_loopback(settings.host):
            log.warning("open_to_the_network", address=address, problem="no TLS, no authentication")
        await stop.wait()
        log.info("draining", service=name, grace_s=settings.grace_s)
        await checks.enter_graceful_shutdown()
        if on_drain:
            await on_drain()
    finally:
        if settings.ready_file:
            settings.ready_file.unlink(missing_ok=True)
        await server.stop(settings.grace_s)
    log.info("stopped", service=name)


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound = server.add_insecure_port(target)
    except RuntimeError:
        bound = 0
    if not bound:
        check_address(host, port)
        raise PortUnavailable(host, port, "it was in use a moment ago")
    return bound


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(host: str, port: int) -> None:
    """Try the address and let it go: the operating system says why, where gRPC says only that it failed.

    Raises PortUnavailable.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As gRPC listens: a port whose last connections still linger is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise PortUnavailable(host, port, (error.strerror or str(error)).lower()) from error


def _write_ready_file(path: Path, content: dict[str, object]) -> None:
    """Whole or not at all: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
    temporary.replace(path)
