"""What stops a start with one line instead of a traceback."""

from __future__ import annotations


class StartupError(Exception):
    """The process can not start; the message is one sentence that names what to change."""


class PortUnavailable(StartupError):
    """The address to listen on can not be had."""

    def __init__(self, host: str, port: int, why: str, setting: str = "--port (OUTRIDER_PORT)") -> None:
        fix = f"stop what uses it, or set another {setting}"
        super().__init__(f"cannot listen on {host}:{port}: {why}; {fix}")
        self.host = host
        self.port = port
