"""A real Redis on a free port, whose faults are real, too: stopped, killed, full, filled by somebody else."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis import Redis
from redis.exceptions import RedisError

DEADLINE_S = 20.0


class RedisServer:
    """Started by the context, ended with it; nothing is kept on disk.

    Raises RuntimeError where Redis is not installed.
    """

    def __init__(self, folder: Path, *options: str, tls: bool = False, **login: Any) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise RuntimeError("redis-server is not installed: apt-get install redis-server")
        self._program = program
        self._folder = folder
        self._options = options
        self._login = login
        self._tls = tls
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As --redis-url takes it, without a login."""
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        number = str(self.port)
        port = ["--port", "0", "--tls-port", number] if self._tls else ["--port", number]
        command = [self._program, "--bind", "127.0.0.1", *port, "--save", "", "--appendonly", "no"]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options], cwd=self._folder, stdout=log, stderr=log
            )
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.client.ping()
            except (RedisError, OSError):
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.02)
            else:
                return

    @property
    def is_running(self) -> bool:
        """Whether there is a process, answering or not."""
        return self._process is not None

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop_answering(self) -> None:
        """It lives, and says nothing, until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again."""
        self._signal(signal.SIGCONT)

    @property
    def client(self) -> Redis:
        """For looking at it from outside."""
        return Redis(host="127.0.0.1", port=self.port, **self._login)

    def _signal(self, number: int) -> None:
        if self._process is None:
            raise RuntimeError("it does not run")
        self._process.send_signal(number)
