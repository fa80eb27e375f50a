"""The program `outrider` as a person runs it: commands, and a running `outrider up`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

PROGRAM = (sys.executable, "-m", "outrider.cli.main")
SOURCE_FOLDER = Path(__file__).parents[2]
TIMEOUT_S = 120.0


def outrider(*arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `text` is its standard input."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
        cwd=SOURCE_FOLDER,
        check=False,
    )


def begin(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a command; whoever asks waits for its end, or kills it."""
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, **environment},
        cwd=SOURCE_FOLDER,
    )


def wait_for(holds: Callable[[], object], what: str) -> None:
    """Return once it holds; an AssertionError that names `what` if it never does."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not so after {TIMEOUT_S:.0f} s"
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass
class Up:
    """One `outrider up`; leaving it ends the command, and with it the processes."""

    folder: Path
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    popen: subprocess.Popen[bytes] | None = None

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready.json"

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    def __enter__(self) -> Self:
        command = [*PROGRAM, "up", *self.arguments, "--ports", "auto"]
        command += ["--ready-file", str(self.ready_file), "--log-dir", str(self.folder / "logs")]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "output").open("wb") as output:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **self.environment},
                cwd=SOURCE_FOLDER,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self.popen is not None
        self.popen.kill()
        self.popen.wait(TIMEOUT_S)

    def wait_until_ready(self) -> Self:
        """Wait for the ready file. Raises AssertionError, with what was printed, when it does not come."""
        assert self.popen is not None

        def ready() -> bool:
            assert self.popen is not None
            assert self.popen.poll() is None, f"`outrider up` ended:\n{self.output}"
            return self.ready_file.exists()

        wait_for(ready, "`outrider up` is ready")
        return self

    @property
    def document(self) -> dict[str, Any]:
        """The ready file."""
        document: dict[str, Any] = json.loads(self.ready_file.read_text(encoding="utf-8"))
        return document

    @property
    def gateway(self) -> str:
        return str(self.document["gateway"])

    @property
    def pids(self) -> dict[str, int]:
        """Of the processes, by name."""
        return {name: int(each["pid"]) for name, each in self.document["processes"].items()}

    def address(self, name: str) -> str:
        """Of one process."""
        return str(self.document["processes"][name]["address"])

    def signal(self, number: signal.Signals) -> int:
        """Send a signal to the command alone, and wait for its exit code."""
        assert self.popen is not None
        self.popen.send_signal(number)
        return self.popen.wait(TIMEOUT_S)
