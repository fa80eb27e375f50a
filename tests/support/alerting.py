"""Alerts over figures that a test feeds, on a clock that it turns, with a port that only notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from outrider.rpc.errors import OutriderError
from outrider.wire.generation import DraftSource
from outrider.wire.state import WorkerState, WorkerStatus
from outrider.wire.worker import WorkerLoad
from services.scheduler.alerts import DEFAULT_RULES, AlertPort, Alerts, Rule
from services.scheduler.figures import Figures

TOKENS_PER_S = 20


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass
class RecordingPort:
    """Notes when which draft was to be loaded again; each load has a version of its own."""

    clock: Clock
    validator_states: Sequence[WorkerState] = ()
    draft_states: Sequence[WorkerState] = ()
    version: str = "v0"
    reloads: list[tuple[float, str]] = field(default_factory=list)
    error: OutriderError | None = None

    async def reload_draft(self, model_version: str) -> str:
        self.reloads.append((self.clock.now, model_version))
        if self.error is not None:
            raise self.error
        self.version = f"v{len(self.reloads)}"
        return self.version


class Scene:
    """A scheduler's figures and alerts without the scheduler."""

    def __init__(
        self, rules: Sequence[Rule] = DEFAULT_RULES, port: AlertPort | None = None, **options: Any
    ) -> None:
        self.clock = Clock()
        self.figures = Figures(self.clock)
        self.port = RecordingPort(self.clock)
        # Of the draft whose proposals are judged; None: the one that the recording port loaded last.
        self.version: str | None = None
        self.alerts = Alerts(
            rules,
            self.figures,
            port or self.port,
            clock=self.clock,
            wall=self.clock,
            **{"max_depth": 16, **options},
        )

    async def drafts(
        self, seconds: float, acceptance: float, workload: str = "code", every_s: float = 5.0
    ) -> None:
        """So long of drafting by the model, with so much accepted, looked at every few seconds."""
        for _ in range(round(seconds / every_s)):
            drafted = round(TOKENS_PER_S * every_s)
            version = self.version or self.port.version
            self.figures.judged(DraftSource.MODEL, workload, version, drafted, round(acceptance * drafted))
            await self.passes(every_s, every_s)

    async def passes(self, seconds: float, every_s: float = 1.0) -> None:
        """So long, looked at every so often."""
        for _ in range(round(seconds / every_s)):
            self.clock.now += every_s
            self.alerts.tick()
            await self.alerts.settled()

    def memory(self, share: float) -> None:
        """The validator tells that so much is in use."""
        self.port.validator_states = [worker(memory_bytes=round(1000 * share), memory_limit_bytes=1000)]

    def firing(self) -> set[str]:
        return {state.name for state in self.alerts.states if state.firing}

    def events(self, name: str = "") -> list[str]:
        """Kinds, in their order."""
        return [event.kind for event in self.alerts.history if name in ("", event.name)]


def worker(status: WorkerStatus = WorkerStatus.READY, **load: Any) -> WorkerState:
    return replace(WorkerState("10.0.0.1:50052", status), load=WorkerLoad(**load))
