"""All services in one process and one event loop, over real gRPC on free ports, with tiny models.

Where `tests.support.cluster` starts processes, here a test sees into the model's steps and swaps what the
draft proposes between two answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gateway.server import serve as serve_gateway
from gateway.settings import GatewaySettings
from outrider.client import Completion, OutriderClient, PromptIds
from outrider.wire.generation import DraftSource, Speculation
from services.draft.server import serve as serve_draft
from services.draft.settings import DraftSettings
from services.scheduler.server import serve as serve_scheduler
from services.scheduler.settings import SchedulerSettings
from services.validator.server import serve as serve_validator
from services.validator.settings import ValidatorSettings
from tests.support.calls import until_drafts_ready
from tests.support.divergence import Asked
from tests.support.known_drafts import KINDS, known_draft
from tests.support.scripted_workers import DraftBrain, Proposer, ScriptedWorker, scripted_draft, serving
from tests.support.truth import Truth
from tests.support.worker_wire import serving as serving_in_process

SMALL = {"port": 0, "num_threads": 1, "kv_budget_mib": 4, "prefill_chunk": 64, "grace_s": 0.2}
"""A worker for tiny models."""
CASES = (
    *(("oracle", 4, 1), ("oracle", 3, 3), ("wrong at 2", 5, 1), ("wrong at 2", 4, 3)),
    *(("wrong at 0", 2, 1), ("random", 3, 2), ("absent", 4, 1)),
)
"""Kinds of drafts as (kind, k, w), chains and trees, such that each kind shows what it can."""
EVERY_CASE = tuple(
    (kind, k, w) for kind in (*KINDS, "wrong at 1", "wrong at 7") for k in (1, 2, 5, 8) for w in (1, 3)
)


@dataclass
class House:
    """A target, what it answers by definition, and two ways to it."""

    truth: Truth
    validator: str
    """Address."""
    scripted: OutriderClient
    """Through a scheduler whose draft proposes what the test says."""
    worker: ScriptedWorker
    """That draft."""
    real: OutriderClient | None = None
    """Through a scheduler whose draft is a model."""

    def propose(self, proposer: Proposer) -> None:
        assert isinstance(self.worker.brain, DraftBrain)
        self.worker.brain.propose = proposer

    async def ask(self, asked: Asked, k: int = 4, w: int = 1, **options: Any) -> Completion:
        """Through the scripted draft."""
        return await ask(self.scripted, asked, k, w, **options)

    async def ask_real(self, asked: Asked, k: int = 4, w: int = 1, **options: Any) -> Completion:
        """Through the draft model."""
        assert self.real is not None
        return await ask(self.real, asked, k, w, **options)

    def check(self, answer: Completion, asked: Asked) -> None:
        """The answer is the target's by definition: ids, logprobs, and nothing is missing."""
        right = self.truth.answer(asked)
        parted = self.truth.divergence(answer.token_ids, right.ids, asked)
        assert parted is None, f"{parted}, in {asked}"
        wanted = [_in_float32(entry.logprob, entry.top_logprobs) for entry in right.logprobs]
        assert [(entry.logprob, *entry.top_logprobs) for entry in answer.logprobs] == wanted
        assert [entry.top_ids for entry in answer.logprobs] == [entry.top_ids for entry in right.logprobs]
        assert answer.final.completion_tokens == len(right.ids)

    async def check_all(self, asked: Asked, cases: Iterable[tuple[str, int, int]] = CASES) -> Completion:
        """The same answer with each kind of draft, as chain and tree, and plain, which is given back."""
        plain = await self.ask(asked, k=0)
        self.check(plain, asked)
        assert plain.final.counters.drafted == 0
        for kind, k, w in cases:
            self.propose(known_draft(kind, self.truth))
            answer = await self.ask(asked, k, w)
            self.check(answer, asked)
            counters = answer.final.counters
            if kind == "oracle" and w == 1 and len(answer.token_ids) > 2:
                assert counters.accepted == counters.drafted > 0, f"the oracle is refused in {asked}"
            if kind == "wrong at 0" and w == 1:
                assert counters.accepted == 0 < counters.drafted
        return plain


async def ask(client: OutriderClient, asked: Asked, k: int, w: int, **options: Any) -> Completion:
    """One answer; `options` as of the client."""
    speculation = Speculation(k=k, w=w, source=DraftSource.MODEL)
    return await client.complete(
        PromptIds(asked.prompt),
        sampling=asked.sampling,
        seed=asked.seed,
        choice=asked.choice,
        **{"speculation": speculation, **options},
    )


@asynccontextmanager
async def running(
    target: Path,
    *,
    dtype: str = "bfloat16",
    draft: Path | None = None,
    validator_settings: dict[str, Any] | None = None,
    draft_settings: dict[str, Any] | None = None,
    scheduler_settings: dict[str, Any] | None = None,
) -> AsyncIterator[House]:
    """A house for this target; with a draft model where one is given."""
    own = {**SMALL, "model": str(target), "dtype": dtype, **(validator_settings or {})}
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        validator = await start(serving_in_process(serve_validator, ValidatorSettings.model_validate(own)))
        truth = await asyncio.to_thread(Truth.load, target, dtype)
        worker = scripted_draft(known_draft("absent", truth), truth.info)
        scripted_address = await start(serving(worker))
        options = scheduler_settings or {}
        house = House(truth, validator, await start(_front(validator, scripted_address, options)), worker)
        if draft is not None:
            values = {**SMALL, "model": str(draft), "dtype": dtype, **(draft_settings or {})}
            address = await start(serving_in_process(serve_draft, DraftSettings.model_validate(values)))
            house.real = await start(_front(validator, address, options))
        yield house


@asynccontextmanager
async def _front(validator: str, draft: str, options: dict[str, Any]) -> AsyncIterator[OutriderClient]:
    """A client of a gateway before a scheduler with these workers."""
    chosen = SchedulerSettings(
        port=0, grace_s=0.2, validators=(validator,), drafts=(draft,), draft_wait_ms=20_000, **options
    )
    async with serving_in_process(serve_scheduler, chosen) as scheduler:
        await until_drafts_ready(scheduler)
        settings = GatewaySettings(port=0, grace_s=0.2, scheduler=(scheduler,))
        async with serving_in_process(serve_gateway, settings) as gateway, OutriderClient(gateway) as client:
            yield client


def _in_float32(first: float, others: Iterable[float]) -> tuple[float, ...]:
    """As they cross the wire."""
    return tuple(float(np.float32(value)) for value in (first, *others))
