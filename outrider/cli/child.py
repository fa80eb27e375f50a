"""One child process: started, watched until it is ready, stopped."""

from __future__ import annotations

import asyncio
import enum
import json
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path

from outrider.cli.plan import HOST, ChildPlan
from outrider.rpc.process import EXIT_USAGE

POLL_S = 0.05
TAIL_LINES = 15


class State(enum.Enum):
    """Where a child stands."""

    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"


class Child:
    """Runs one plan; may be started again after it has ended."""

    def __init__(self, plan: ChildPlan, folder: Path) -> None:
        self.plan = plan
        self.log = folder / f"{plan.name}.log"
        self.state = State.STARTING
        self.started_s = 0.0
        """time.monotonic() of the last start."""
        self.ready_s = 0.0
        """time.monotonic() of when it was ready."""
        self._ready_file = folder / f"{plan.name}.ready"
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the last start; None before the first."""
        return self._process.pid if self._process else None

    @property
    def steady_s(self) -> float:
        """Seconds since the last start was ready; 0 when it was not."""
        return time.monotonic() - self.ready_s if self.ready_s > self.started_s else 0.0

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode if self._process else None
        if code is None:
            return "runs"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    @property
    def refusal(self) -> str:
        """The one line with which it refused to start; empty when it ended in another way."""
        refused = self._process is not None and self._process.returncode == EXIT_USAGE
        return self.tail().rpartition("\n")[2] if refused else ""

    async def start(self) -> None:
        """Start the process; its output goes to the log, behind that of earlier starts."""
        self._ready_file.unlink(missing_ok=True)
        self.state, self.started_s = State.STARTING, time.monotonic()
        metrics_port = "off" if self.plan.metrics_port is None else self.plan.metrics_port
        common = (
            f"--host={HOST}",
            f"--port={self.plan.port}",
            f"--metrics-port={metrics_port}",
            f"--ready-file={self._ready_file}",
        )
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "outrider.cli.launch",
                str(os.getpid()),
                self.plan.module,
                *common,
                *self.plan.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A variable that the user set wins.
                env={**self.plan.environment, **os.environ},
                # Ctrl-C at the terminal is for us alone: we stop the children in order.
                start_new_session=True,
            )

    async def wait_ready(self) -> bool:
        """Wait until it can answer; False when it ended before."""
        while self._process is not None and self._process.returncode is None:
            if self._says_ready():
                self.state, self.ready_s = State.READY, time.monotonic()
                return True
            await asyncio.sleep(POLL_S)
        self.state = State.ENDED
        return False

    async def wait_end(self) -> None:
        """Wait until the process has ended."""
        if self._process is not None:
            await self._process.wait()
            self.state = State.ENDED

    async def stop(self, grace_s: float) -> None:
        """Ask it to drain; kill it after the grace."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        self.state = State.ENDED

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def tail(self) -> str:
        """The last lines of its log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError as error:
            return f"({self.log}: {error.strerror})"
        return "\n".join(lines[-TAIL_LINES:])

    def _says_ready(self) -> bool:
        try:
            written = json.loads(self._ready_file.read_text())
        except (OSError, ValueError):
            return False
        # A file that an earlier start left behind names another process.
        return bool(written.get("pid") == self.pid)
