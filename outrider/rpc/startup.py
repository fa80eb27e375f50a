"""What stops a start with one line instead of a traceback."""

from __future__ import annotations


class StartupError(Exception):
    """The process can not start; the message is one sentence that names what to change."""


class PortUnavailable(StartupError):
    """The address to listen on can not be had."""

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(
            f"cannot listen on {host}:{port}: {why}; stop what uses it, or set another --port (OUTRIDER_PORT)"
        )
        self.host = host
        self.port = port
