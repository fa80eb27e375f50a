"""Deployments under measurement: `outrider up` as a child, stopped at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from typing import Any

from bench.configurations import Layout
from bench.processes import child_environment
from outrider.cli.plan import pair_of

START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 40.0
POLL_S = 0.1
BASE_ENVIRONMENT = {
    # A prompt is asked again and again in one run: kept pages would spare all but the first its prefill.
    "OUTRIDER_PREFIX_CACHE": "false",
}


class StartFailed(Exception):
    """A process under measurement did not start; the message says what it said."""


def models_of(models: str, *, draft: bool) -> str:
    """What --models of `outrider up` gets: the pair, or the path of its target alone."""
    return models if draft else pair_of(models).target


class Deployment:
    """The processes of one layout."""

    def __init__(self, layout: Layout, address: str, processes: dict[str, int], process: Process) -> None:
        self.layout = layout
        self.address = address
        """Of the gateway, host:port."""
        self.processes = processes
        """Name -> pid: validator, draft, scheduler, gateway."""
        self._process = process

    @classmethod
    async def start(cls, models: str, layout: Layout, folder: Path) -> Deployment:
        """Start and wait until all processes are ready; logs go to `folder`. Raises StartFailed."""
        ready, log = _files(folder)
        command = [
            *(sys.executable, "-m", "outrider.cli.launch", str(os.getpid()), "outrider.cli.main", "up"),
            *("--models", models_of(models, draft=layout.draft), "--ports", "auto", "--no-restart"),
            *("--ready-file", str(ready), "--log-dir", str(folder), *layout.flags),
        ]
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                env=child_environment({**BASE_ENVIRONMENT, **layout.environment}),
                # Ctrl-C is for us alone: `stop` ends them in order.
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while (written := _read(ready)) is None:
                    _check_running(process, layout, log)
                    await asyncio.sleep(POLL_S)
        except BaseException:
            if process.returncode is None:
                process.kill()
            raise
        pids = {name: each["pid"] for name, each in written["processes"].items()}
        return cls(layout, written["gateway"], pids, process)

    @property
    def pids(self) -> list[int]:
        """Of all its processes."""
        return list(self.processes.values())

    async def stop(self) -> None:
        """Stop all processes in order."""
        if self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _files(folder: Path) -> tuple[Path, Path]:
    """The ready file, not there yet, and the log."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    return ready, folder / "up.log"


def _read(ready: Path) -> dict[str, Any] | None:
    try:
        written: dict[str, Any] = json.loads(ready.read_text())
    except FileNotFoundError:
        return None
    return written


def _check_running(process: Process, layout: Layout, log: Path) -> None:
    if process.returncode is not None:
        said = log.read_text(errors="replace").strip().splitlines()[-3:]
        raise StartFailed(f"layout {layout.name} did not start: {' '.join(said)}")
