"""The HTTP server that Prometheus scrapes, on threads of its own: a scrape never waits for the event loop."""

from __future__ import annotations

import socket
import threading
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

if TYPE_CHECKING:
    from outrider.telemetry.metrics import Metrics

POLL_S = 0.25
"""How often the server looks whether it should end."""


class MetricsServer:
    """Answers `GET /metrics` between `with` and its end.

    Raises OSError when it is made: the address can not be had.
    """

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Listen on `port`, 0 for any that is free; `metrics.address` is set."""
        kind = _Server6 if ":" in host else _Server
        self._metrics = metrics
        self._server = kind((host, port), _Handler)
        self._server.set_app(make_wsgi_app(metrics.registry))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="metrics", daemon=True
        )
        self.port: int = self._server.server_address[1]
        shown = f"[{host}]" if ":" in host else host
        metrics.address = f"{shown}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._metrics.address = ""


class _Server(ThreadingMixIn, WSGIServer):
    """One thread for each scrape; none of them keeps the process alive."""

    daemon_threads = True

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks the resolver for the host's name, and that can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # a name of the base class
        """Nothing: scrapes are no news."""
