"""In-memory workers for tests of one session: the ports of the scheduler with faults at chosen moments."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any

from outrider.wire.draft import OpenDraft, Proposal
from outrider.wire.validator import OpenTarget, Verdict
from outrider.wire.worker import Addressed, Close, Header, ModelInfo, Resume
from services.scheduler.latency import Latency
from services.scheduler.ports import PeerLost
from services.scheduler.questions import Questions
from tests.support.scripted_workers import Brain, DraftBrain, Events, ValidatorBrain


class Fault(enum.Enum):
    """What happens to one question."""

    NONE = enum.auto()
    LOST_BEFORE = enum.auto()
    """The connection breaks before the worker reads it."""
    LOST_AFTER = enum.auto()
    """The worker does it, and the answer is lost with the connection."""
    KILLED = enum.auto()
    """The process dies before it reads the question."""
    HELD = enum.auto()
    """The answer waits for `release`."""
    TWICE = enum.auto()
    """The answer comes twice."""


Faults = Callable[[Header, Any], Fault]


class FakePort:
    """Both ports, over a brain. A lost connection is back at once; a killed worker never."""

    def __init__(self, brain: Brain, info: ModelInfo, address: str, faults: Faults | None = None) -> None:
        self.brain = brain
        self.info = info
        self.address = address
        self.faults = faults or (lambda *_: Fault.NONE)
        self.ready = True
        self.draining = False
        self.latency = Latency(0.05)
        self.asked: list[Addressed[Any]] = []
        self.closed: list[Header] = []
        self._held: Events = []
        answer: type[Any] = Verdict if isinstance(brain, ValidatorBrain) else Proposal
        self.questions: Questions[Any] = Questions(answer)
        self.questions.begin()

    def ask(self, header: Header, command: Any, *, resume: bool = False) -> asyncio.Future[Any]:
        if not self.ready and not self.draining:
            raise PeerLost(self.address)
        self.asked.append(Addressed(header, command))
        answer = self.questions.ask(header, opens=isinstance(command, OpenDraft | OpenTarget))
        fault = self.faults(header, command)
        if fault in (Fault.LOST_BEFORE, Fault.KILLED):
            self.ready = fault is Fault.LOST_BEFORE
            self._lose()
            return answer
        events = self.brain.handle(header, Resume()) if resume else []
        events += self.brain.handle(header, command)
        match fault:
            case Fault.LOST_AFTER:
                self._lose()
            case Fault.HELD:
                self._held += events
            case Fault.TWICE:
                self._deliver(events + events)
            case _:
                self._deliver(events)
        return answer

    def room(self, session: bytes) -> int:
        return self.questions.room(session)

    def close(self, header: Header) -> None:
        self.closed.append(header)
        self.questions.forget(header.session)
        self.brain.handle(header, Close())

    def release(self) -> None:
        """Deliver what was held."""
        held, self._held = self._held, []
        self._deliver(held)

    def _deliver(self, events: Events) -> None:
        loop = asyncio.get_running_loop()
        for header, event in events:
            loop.call_soon(self.questions.receive, header, event)

    def _lose(self) -> None:
        def break_off() -> None:
            self.questions.reset()
            self.questions.begin()

        asyncio.get_running_loop().call_soon(break_off)


class FakeWorkers:
    """The set of workers of a test; `add` lets one come up later."""

    def __init__(self, validators: list[FakePort], drafts: list[FakePort] | None = None) -> None:
        self.all_validators = validators
        self.all_drafts = drafts or []
        self.no_draft = "absent"
        self._change = asyncio.Event()

    def validators(self, *, numerics_id: str = "") -> list[Any]:
        return [
            port
            for port in self.all_validators
            if port.ready and not port.draining and numerics_id in ("", port.info.numerics_id)
        ]

    def draft(self, model: str | None = None) -> Any:
        ready = (port for port in self.all_drafts if port.ready and not port.draining)
        return next((port for port in ready if model in (None, port.info.model)), None)

    def draft_models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(port.info.model for port in self.all_drafts if port.ready))

    def why_no_draft(self) -> str:
        return self.no_draft

    async def changed(self) -> None:
        await self._change.wait()

    def add(self, port: FakePort) -> None:
        (self.all_drafts if isinstance(port.brain, DraftBrain) else self.all_validators).append(port)
        self._change.set()
        self._change = asyncio.Event()
