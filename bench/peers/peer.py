"""The parent's side of a peer: JSON objects, one a line, over the child's standard input and output."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.deployments import StartFailed
from bench.processes import child_environment

START_TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 600.0
MAX_LINE_BYTES = 1 << 24


class PeerFailed(Exception):
    """A peer ended, or answered with an error."""


class Peer:
    """One child process. It ends when its standard input does, so also when this process dies."""

    def __init__(self, name: str, process: Process, log: Path, about: dict[str, Any]) -> None:
        self.name = name
        self.about = about
        """What the peer says of itself: versions, threads."""
        self._process = process
        self._log = log

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> Peer:
        """Start and wait until it says that it is ready. Raises StartFailed."""
        log = _log(folder, name)
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=output,
                env=child_environment(environment or {}),
                limit=MAX_LINE_BYTES,
                start_new_session=True,
            )
        peer = cls(name, process, log, {})
        try:
            peer.about = await peer._read(START_TIMEOUT_S)
        except (PeerFailed, TimeoutError) as error:
            await peer.stop()
            raise StartFailed(f"{name} did not start: {error}") from error
        return peer

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._process.pid

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """One question, one answer. Raises PeerFailed."""
        if self._process.stdin is None:
            raise PeerFailed(f"{self.name} has no standard input")
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        await self._process.stdin.drain()
        return await self._read(ANSWER_TIMEOUT_S)

    async def stop(self) -> None:
        """End it; it has nothing to save."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _read(self, timeout_s: float) -> dict[str, Any]:
        if self._process.stdout is None:
            raise PeerFailed(f"{self.name} has no standard output")
        async with asyncio.timeout(timeout_s):
            line = await self._process.stdout.readline()
        if not line:
            said = self._log.read_text(errors="replace").strip().splitlines()[-3:]
            raise PeerFailed(f"{self.name} has ended: {' '.join(said)} (log: {self._log})")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailed(f"{self.name}: {answer['error']}")
        return answer


def _log(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"
