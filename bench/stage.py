"""All that runs at one time: deployments and peers, started when first needed, stopped when no longer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Self

from bench.configurations import Configuration, Layout
from bench.deployments import Deployment
from bench.peers import llama_cpp
from bench.peers.peer import Peer
from bench.turns import Ours, Subject, Theirs
from outrider.cli.plan import pair_of
from outrider.client import OutriderClient, SamplingParameters

HUGGING_FACE = "hugging-face"
LLAMA_CPP = "llama.cpp"
ONE_PROCESS = "one-process"
PEERS = {
    "hf-plain": (HUGGING_FACE, "plain"),
    "hf-assisted": (HUGGING_FACE, "assisted"),
    "hf-lookup": (HUGGING_FACE, "lookup"),
    "llama.cpp": (LLAMA_CPP, "plain"),
    "llama.cpp-assisted": (LLAMA_CPP, "assisted"),
    "llama.cpp-lookup": (LLAMA_CPP, "lookup"),
}
"""Name -> the process, and the mode that it is asked for."""
DEFAULT_PEERS = ("hf-plain", "hf-assisted", "hf-lookup", "llama.cpp")


class Stage:
    """Owns every child process of a run. One set of models."""

    def __init__(self, models: str, folder: Path, say: Callable[[str], None]) -> None:
        """Logs go below `folder`. Raises PlanError when the models are not there."""
        self.models = models
        self._pair = pair_of(models)
        self._folder = folder
        self._say = say
        self._deployments: dict[str, Deployment] = {}
        self._clients: dict[str, OutriderClient] = {}
        self._peers: dict[str, Peer] = {}
        self._encode: Callable[[str], tuple[int, ...]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.only(())

    @property
    def has_draft(self) -> bool:
        """Whether the models are a pair."""
        return self._pair.draft is not None

    @property
    def target(self) -> str:
        """The target, as the workers' --model takes it."""
        return self._pair.target

    async def only(self, names: Collection[str]) -> None:
        """Stop every layout and peer that is not named: its memory may be needed."""
        for name in [name for name in self._deployments if name not in names]:
            await self._clients.pop(name).close()
            await self._deployments.pop(name).stop()
        for name in [name for name in self._peers if name not in names]:
            await self._peers.pop(name).stop()

    async def deployment(self, layout: Layout) -> Deployment:
        """The running deployment of a layout."""
        if layout.name not in self._deployments:
            self._say(f"starting layout {layout.name}")
            started = await Deployment.start(self.models, layout, self._folder / layout.name)
            self._deployments[layout.name] = started
            self._clients[layout.name] = OutriderClient(started.address)
        return self._deployments[layout.name]

    async def client(self, layout: Layout) -> OutriderClient:
        """A client of the layout's gateway."""
        await self.deployment(layout)
        return self._clients[layout.name]

    async def ours(self, configuration: Configuration, layout: Layout, sampling: SamplingParameters) -> Ours:
        """A configuration that takes turns."""
        deployment = await self.deployment(layout)
        return Ours(configuration, self._clients[layout.name], deployment.pids, sampling)

    async def theirs(self, name: str) -> Subject | None:
        """A peer that takes turns, by its name in `PEERS`; None, with a line, where it is missing."""
        process, mode = PEERS[name]
        if mode == "assisted" and self._pair.draft is None:
            return None
        if process == LLAMA_CPP and not llama_cpp.is_installed():
            self._say(f"{name}: not installed; `python -m bench.peers install-llama-cpp` installs it")
            return None
        peer = await self.peer(process)
        return None if peer is None else Theirs(name, peer, mode, self.encode)

    async def peer(
        self, process: str, *extra: str, environment: Mapping[str, str] | None = None
    ) -> Peer | None:
        """The running peer process; None where it can not run these models."""
        if process not in self._peers:
            command = self._command(process)
            if command is None:
                self._say(f"{process}: needs GGUF files")
                return None
            self._say(f"starting {process}")
            self._peers[process] = await Peer.start(process, [*command, *extra], self._folder, environment)
        return self._peers[process]

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids that the gateway makes of a user's turn."""
        if self._encode is None:
            # Loads torch, for the conversion of GGUF files; only peers need it.
            from bench.prompt_ids import encoder

            self._encode = encoder(self._pair.target)
        return self._encode(text)

    @property
    def memory(self) -> dict[str, int]:
        """Process -> pid of all that runs."""
        found = {
            f"{name}/{part}": pid
            for name, each in self._deployments.items()
            for part, pid in each.processes.items()
        }
        return found | {name: peer.pid for name, peer in self._peers.items()}

    @property
    def peers(self) -> dict[str, Peer]:
        """The peers that run."""
        return dict(self._peers)

    def _command(self, process: str) -> list[str] | None:
        target, draft = self._pair.target, self._pair.draft
        if process == LLAMA_CPP:
            return llama_cpp.command(target, draft)
        if process == ONE_PROCESS:
            # What it loads, it is told by the services' own flags.
            return [sys.executable, "-m", "bench.peers.one_process"]
        return [sys.executable, "-m", "bench.peers.hugging_face", target, *([draft] if draft else [])]
