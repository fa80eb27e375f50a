"""Real processes for system tests: started, waited for, killed and started again by role."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0


@dataclass
class Process:
    """One service process. `address` stays the same when it is started again."""

    module: str
    arguments: list[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    address: str = ""
    popen: subprocess.Popen[bytes] | None = None

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready.json"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def launch(self) -> Self:
        """Start without waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ready_file.unlink(missing_ok=True)
        port = self.address.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", self.module, "--port", port, "--ready-file", str(self.ready_file)]
        with (self.folder / "log").open("ab") as log:
            self.popen = subprocess.Popen(
                [*command, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                cwd=Path(__file__).parents[2],
            )
        return self

    def wait_until_ready(self) -> Self:
        """Wait until the process answers. Raises AssertionError, with its log, when it does not."""
        assert self.popen is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.ready_file.exists():
            assert self.popen.poll() is None, f"{self.module} ended at its start:\n{self.log}"
            assert time.monotonic() < deadline, f"{self.module} is not ready:\n{self.log}"
            time.sleep(0.05)
        self.address = json.loads(self.ready_file.read_text(encoding="utf-8"))["address"]
        return self

    def start(self) -> Self:
        """Start, and wait until the process answers."""
        return self.launch().wait_until_ready()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        assert self.popen is not None
        self.popen.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        assert self.popen is not None
        self.popen.kill()
        self.popen.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """Ask it to drain and end; returns the exit code."""
        assert self.popen is not None
        if self.popen.poll() is None:
            self.popen.terminate()
        return self.wait()

    def wait(self) -> int:
        """The exit code of a process that was asked to end."""
        assert self.popen is not None
        try:
            return self.popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(STOP_TIMEOUT_S)
            raise AssertionError(f"{self.module} did not stop:\n{self.log}") from None


class Cluster:
    """Starts processes and stops all that still run when it is left."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        self._folder = folder
        self._environment = environment or {}
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def process(self, module: str, *arguments: str) -> Process:
        """A process of this cluster that is not started yet."""
        self._count += 1
        name = f"{self._count}-{module.rpartition('.')[2]}"
        process = Process(module, list(arguments), self._folder / name, self._environment)
        self._stack.callback(_end, process)
        return process

    def validator(self, model: str | Path, *arguments: str) -> Process:
        return self.process("services.validator", "--model", str(model), *arguments)

    def draft(self, model: str | Path, *arguments: str) -> Process:
        return self.process("services.draft", "--model", str(model), *arguments)

    def scheduler(self, validators: list[Process], drafts: list[str], *arguments: str) -> Process:
        return self.process(
            "services.scheduler",
            "--validators",
            ",".join(validator.address for validator in validators),
            "--drafts",
            ",".join(drafts),
            *arguments,
        )

    def gateway(self, scheduler: Process, *arguments: str) -> Process:
        return self.process("gateway", "--scheduler", scheduler.address, *arguments)

    def front(self, validators: list[Process], drafts: list[str], *arguments: str) -> Process:
        """Start a scheduler for these workers and a gateway for it; returns the gateway."""
        scheduler = self.scheduler(validators, drafts, *arguments).start()
        return self.gateway(scheduler).start()


def start_all(*processes: Process) -> None:
    """Start processes side by side."""
    for process in processes:
        process.launch()
    for process in processes:
        process.wait_until_ready()


def _end(process: Process) -> None:
    if process.popen is not None and process.popen.poll() is None:
        # A stopped process would not hear anything else.
        process.popen.send_signal(signal.SIGCONT)
        process.popen.kill()
        process.popen.wait(STOP_TIMEOUT_S)
