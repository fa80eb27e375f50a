"""One session over in-memory workers, run to its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from outrider.sampling.parameters import SamplingParameters
from outrider.store import Namespace, Store
from outrider.telemetry import NO_TRACING
from outrider.wire.generation import DraftSource
from outrider.wire.scheduler import Committed, Finished, GenerateEvent, GenerateRequest
from services.scheduler.admission import Plan
from services.scheduler.control.control import Control
from services.scheduler.session import Session
from services.scheduler.settings import SchedulerSettings
from services.scheduler.sources import SessionFacts
from services.scheduler.spans import SessionSpan
from services.scheduler.waiting import WaitingRoom
from tests.support.fake_ports import FakePort, FakeWorkers, Faults
from tests.support.reference_target import Generation, ReferenceTarget
from tests.support.scripted_workers import DraftBrain, Proposer, ValidatorBrain

PROMPT = (5, 6, 7, 8, 9, 5, 6)


@dataclass
class Bench:
    """Fakes, and what a session over them delivered."""

    target: ReferenceTarget = field(default_factory=ReferenceTarget)
    workers: FakeWorkers = field(default_factory=lambda: FakeWorkers([]))
    settings: SchedulerSettings = field(default_factory=lambda: SchedulerSettings(reopen_deadline_s=0.2))
    sampling: SamplingParameters = SamplingParameters(max_tokens=60, logprobs=1)
    waiting: WaitingRoom = field(default_factory=WaitingRoom)
    seed: int = 11
    store: Store | None = None
    tenant: str = ""

    def validator(self, faults: Faults | None = None, **changes: Any) -> FakePort:
        number = len(self.workers.all_validators)
        info = replace(self.target.info, instance_id=f"instance-{number:07}".encode(), **changes)
        port = FakePort(ValidatorBrain(target=self.target), info, f"validator-{number}:1", faults)
        self.workers.all_validators.append(port)
        return port

    def draft(self, propose: Proposer, faults: Faults | None = None, credit: int = 2) -> FakePort:
        brain = DraftBrain(propose=propose, credit=credit)
        port = FakePort(brain, self.target.info, f"draft-{len(self.workers.all_drafts)}:1", faults)
        self.workers.all_drafts.append(port)
        return port

    def request(self, **changes: Any) -> GenerateRequest:
        values: dict[str, Any] = {"prompt": PROMPT, "sampling": self.sampling, "seed": self.seed}
        return GenerateRequest(**{**values, **changes})

    def session(
        self,
        k: int = 4,
        source: DraftSource | None = DraftSource.MODEL,
        w: int = 1,
        min_confidence: float = 0.0,
        adapts: bool = False,
        **changes: Any,
    ) -> Session:
        request = self.request(**changes)
        facts = self.facts([*request.prompt, *request.output_so_far], request)
        span = SessionSpan(NO_TRACING, None, facts.session, request)
        plan = Plan(k, w, source, min_confidence=min_confidence, adapts=adapts)
        control = Control(self.settings).session(self.target.info.model, "", plan, request.speculation)
        return Session(facts, plan, self.workers.all_validators[0], span, control)

    def facts(self, tokens: list[int], request: GenerateRequest | None = None) -> SessionFacts:
        request = request or self.request(prompt=tuple(tokens))
        return SessionFacts(
            session=b"session-00000001",
            request=request,
            tokens=tokens,
            end_ids=self.target.end_ids(self.generation(request)),
            vocab_size=self.target.info.vocab_size,
            workers=self.workers,
            settings=self.settings,
            waiting=self.waiting,
            store=self.store,
            namespace=Namespace("tokenizer", "model", tenant=self.tenant) if self.store else None,
        )

    def generation(self, request: GenerateRequest) -> Generation:
        return Generation(len(request.prompt), request.sampling, request.seed, request.choice)

    def plain(self, **changes: Any) -> list[int]:
        """The answer that plain decoding gives."""
        request = self.request(**changes)
        return self.target.plain(request.prompt, self.generation(request))

    def plain_logprobs(self) -> list[float]:
        text, values = list(PROMPT), []
        for token in self.plain():
            values.append(self.target.logprobs(text, token).logprob)
            text.append(token)
        return values


@pytest.fixture
def bench() -> Bench:
    return Bench()


@dataclass
class Delivered:
    """What a caller saw."""

    events: list[GenerateEvent]

    @property
    def ids(self) -> list[int]:
        return [token for event in self.events if isinstance(event, Committed) for token in event.tokens]

    @property
    def logprobs(self) -> list[float]:
        return [
            each.logprob for event in self.events if isinstance(event, Committed) for each in event.logprobs
        ]

    @property
    def finished(self) -> Finished:
        assert isinstance(self.events[-1], Finished), self.events[-1]
        return self.events[-1]


async def collected(events: AsyncGenerator[GenerateEvent, None]) -> Delivered:
    return Delivered([event async for event in events])


@pytest.fixture
def run() -> Callable[[Session], Any]:
    async def to_the_end(session: Session) -> Delivered:
        return await collected(session.run())

    return to_the_end
