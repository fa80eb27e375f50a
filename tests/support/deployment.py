"""Workers and what stands in front of them, for tests that take parts of it away while it answers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from outrider.client import (
    Completion,
    Delta,
    DraftSource,
    Final,
    OutriderClient,
    Prompt,
    SamplingParameters,
    Speculation,
)
from outrider.client.completion import collect
from outrider.wire.state import WorkerState, WorkerStatus
from tests.support.calls import load_of, state_of
from tests.support.cluster import Process
from tests.support.tcp_proxy import TcpProxy

TIMEOUT_S = 60.0
"""Of a wait for something that comes in well under a second on an idle machine."""


async def until(holds: Callable[[], Awaitable[bool]], *, pause_s: float = 0.02) -> None:
    """Return once it holds. Raises TimeoutError when it does not come to it."""
    async with asyncio.timeout(TIMEOUT_S):
        while not await holds():  # noqa: ASYNC110  # what is waited for knows nothing of tests
            await asyncio.sleep(pause_s)


@dataclass(frozen=True)
class Question:
    """What is asked for, and with which k."""

    prompt: Prompt
    sampling: SamplingParameters
    seed: int
    k: int


class Answer:
    """An answer under way, read in a task so that a test can act in the middle of it."""

    def __init__(self, client: OutriderClient, question: Question) -> None:
        self.deltas: list[Delta] = []
        self._events = client.generate(
            question.prompt,
            sampling=question.sampling,
            seed=question.seed,
            speculation=Speculation(k=question.k, source=DraftSource.MODEL),
            # The same is asked again and again: what the store remembers of it would leave nothing to drafts.
            store=False,
        )
        self._task = asyncio.ensure_future(collect(self._noted()))

    @property
    def ended(self) -> bool:
        return self._task.done()

    @property
    def num_rounds(self) -> int:
        """Rounds whose tokens have come."""
        return sum(bool(delta.token_ids) for delta in self.deltas)

    @property
    def token_ids(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.token_ids]

    async def rounds(self, num_rounds: int) -> None:
        """Wait for so many rounds in all."""

        async def came() -> bool:
            assert not self.ended, await self._task
            return self.num_rounds >= num_rounds

        await until(came, pause_s=0.005)

    async def completion(self) -> Completion:
        """The whole answer. Raises the error that ended it."""
        async with asyncio.timeout(2 * TIMEOUT_S):
            return await self._task

    async def leave(self) -> None:
        """Cancel the call, as a client does that goes away."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _noted(self) -> AsyncGenerator[Delta | Final, None]:
        async with aclosing(self._events) as events:
            async for event in events:
                if isinstance(event, Delta):
                    self.deltas.append(event)
                yield event


@dataclass
class Front:
    """A scheduler with a gateway for it."""

    scheduler: Process
    gateway: Process

    async def ready(self, *, num_validators: int, num_drafts: int = 0) -> None:
        """Wait until at least so many workers can take sessions."""

        async def are_there() -> bool:
            state = await state_of(self.scheduler.address)
            return _num_ready(state.validators) >= num_validators and _num_ready(state.drafts) >= num_drafts

        await until(are_there)

    async def lost(self, address: str) -> None:
        """Wait until the scheduler has noticed that this validator is gone."""

        async def is_noticed() -> bool:
            validators = (await state_of(self.scheduler.address)).validators
            return not _num_ready([each for each in validators if each.address == address])

        await until(is_noticed)

    async def draft_is(self, *statuses: WorkerStatus) -> None:
        """Wait until its one draft is in one of these."""

        async def is_so() -> bool:
            return (await state_of(self.scheduler.address)).drafts[0].status in statuses

        await until(is_so)


def _num_ready(workers: Sequence[WorkerState]) -> int:
    return sum(worker.status is WorkerStatus.READY for worker in workers)


@dataclass
class Deployment:
    """Two equal validators, each behind a proxy, and a draft."""

    validators: list[Process]
    draft: Process
    proxies: list[TcpProxy]
    # Answers that nothing disturbed.
    _known: dict[Question, Completion] = field(default_factory=dict)

    @property
    def workers(self) -> list[Process]:
        """All that have a model."""
        return [*self.validators, self.draft]

    def revive(self) -> None:
        """Undo what a test has done to them; what had ended is on its way back, and not waited for."""
        for proxy in self.proxies:
            proxy.refusing = False
        for worker in self.workers:
            assert worker.popen is not None
            if worker.popen.poll() is None:
                worker.send(signal.SIGCONT)
            else:
                worker.launch()

    async def undisturbed(self, client: OutriderClient, question: Question) -> Completion:
        """The answer when nothing happens."""
        if question not in self._known:
            completion = await Answer(client, question).completion()
            assert completion.final.counters.reopens == 0
            self._known[question] = completion
        return self._known[question]


async def rounds_more(answers: Sequence[Answer], num_rounds: int) -> None:
    """Wait until each of these has gone on by so many rounds."""
    await asyncio.gather(*(answer.rounds(answer.num_rounds + num_rounds) for answer in answers))


async def until_idle(workers: Sequence[Process]) -> None:
    """Wait until none of these holds a session or a page of one."""

    async def are_idle() -> bool:
        loads = [await load_of(worker.address) for worker in workers]
        return all(load.num_sessions == 0 and load.num_free_pages == load.num_pages for load in loads)

    await until(are_idle)


async def holder_of(validators: Sequence[Process]) -> int:
    """Index of the validator that has the one session there is."""
    found: list[int] = []

    async def is_there() -> bool:
        loads = await asyncio.gather(*(load_of(each.address) for each in validators))
        found[:] = [index for index, load in enumerate(loads) if load.num_sessions]
        return bool(found)

    await until(is_there)
    assert len(found) == 1, "more than one session is open"
    return found[0]


async def prefilling(workers: Sequence[Process]) -> Process:
    """Wait until one of these has run a part of a prompt and has more of it to run; which one."""
    found: list[Process] = []

    async def is_there() -> bool:
        for worker in workers:
            load = await load_of(worker.address)
            if load.num_waiting and load.num_pages - load.num_free_pages >= 2:
                found.append(worker)
        return bool(found)

    await until(is_there)
    return found[0]
