"""KV memory of both workers, through their engines, on tiny models: reuse, preemption, what is freed when."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from outrider.runtime.loading import load_runtime
from outrider.runtime.runtime import Runtime
from outrider.sampling import DraftTree, SamplingParameters
from outrider.wire.validator import Verify
from outrider.worker.sharing import PrefixSharing
from services.draft.role import Drafting
from services.validator.role import Validating
from tests.support.models import tiny_model
from tests.support.worker_streams import LIMITS, Answer, Drafter, Seam, draft_session, seam, target_session

# 64 tokens of the tiny model in float32.
PAGE_BYTES = 32768
SAMPLING = SamplingParameters(temperature=0.8, top_p=0.95, presence_penalty=0.5, logprobs=2, ignore_eos=True)
GREEDY = SamplingParameters(temperature=0.0, max_tokens=64, ignore_eos=True)
OFF = dataclasses.replace(LIMITS, sharing=PrefixSharing(enabled=False))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("target"), seed=2)


@pytest.fixture(scope="module")
def runtime_of(folder: Path) -> Callable[[int], Runtime]:
    def load(num_pages: int) -> Runtime:
        runtime = load_runtime(
            str(folder), dtype="float32", num_threads=1, kv_budget_bytes=num_pages * PAGE_BYTES
        )
        assert runtime.num_pages == num_pages
        return runtime

    return load


def prompt_of(length: int, seed: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(3, 400) for _ in range(length))


def right_and_wrong(answer: Answer, prompt: Sequence[int], seed: int) -> Drafter:
    """Some right ids and then wrong ones, as a chain or among other candidates."""
    rng = random.Random(seed)

    def draft(tokens: Sequence[int]) -> DraftTree:
        done = len(tokens) - len(prompt)
        path = [*answer.ids[done : done + rng.randrange(4)], rng.randrange(400)]
        return DraftTree.from_candidates([[7, 9], path]) if rng.random() < 0.5 else DraftTree.chain(path)

    return draft


async def solo(
    runtime: Runtime, prompts: Sequence[tuple[int, ...]], sampling: SamplingParameters
) -> list[Answer]:
    """Each alone, nothing drafted, nothing shared."""
    async with seam(runtime, Validating, limits=OFF) as worker, worker.connect() as stream:
        return [await target_session(stream, prompt, sampling).run() for prompt in prompts]


async def test_c54_cold_and_warm_answers_are_equal_with_any_draft(runtime_of: Callable[[int], Runtime]):
    runtime = runtime_of(64)
    sampling = dataclasses.replace(SAMPLING, max_tokens=40)
    stem = prompt_of(200, 1)
    prompts = [(*stem[:length], *prompt_of(30, length)) for length in (200, 130, 64, 63, 10)]
    right = await solo(runtime, prompts, sampling)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        for round_ in range(2):
            for prompt, answer in zip(prompts, right, strict=True):
                drafter = right_and_wrong(answer, prompt, round_)
                warm = await target_session(stream, prompt, sampling).run(drafter)
                assert warm.ids == answer.ids
                assert warm.logprobs == answer.logprobs
        await worker.settled()
        memory = worker.engine.memory
        assert memory.prefix.num_queried_tokens == 2 * sum(map(len, prompts))
        # First time: 128 and 64 of the stem by the second and third. Second time: all full pages.
        assert memory.prefix.num_hit_tokens == 128 + 64 + 192 + 128 + 64 + 64
        assert memory.num_used_pages == 0
        assert memory.num_kept_pages > 0
        assert memory.num_pages == memory.num_kept_pages + memory.num_empty_pages


async def test_c29_two_sessions_in_memory_for_one_and_a_half(runtime_of: Callable[[int], Runtime]):
    """Each grows to 4 pages, 6 are there: both end, with the ids and logprobs that they have alone."""
    runtime = runtime_of(6)
    sampling = dataclasses.replace(SAMPLING, max_tokens=150)
    prompts = [prompt_of(100, 1), prompt_of(105, 2)]
    right = await solo(runtime, prompts, sampling)
    for limits in (LIMITS, OFF):
        async with seam(runtime, Validating, limits=limits) as worker, worker.connect() as stream:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(
                        target_session(stream, prompt, sampling).run(right_and_wrong(answer, prompt, 5))
                    )
                    for prompt, answer in zip(prompts, right, strict=True)
                ]
            for task, answer in zip(running, right, strict=True):
                assert task.result().ids == answer.ids
                assert task.result().logprobs == answer.logprobs
            await worker.settled()
            assert worker.engine.memory.num_preemptions >= 1
            assert worker.engine.memory.num_used_pages == 0
        assert runtime.num_free_pages == 6


@pytest.mark.parametrize("seed", range(3))
async def test_c29_c54_sessions_that_begin_alike_in_little_memory(
    runtime_of: Callable[[int], Runtime], seed: int
):
    """Shared beginnings, evictions, preemptions, closings in the middle: whoever ends has its solo answer."""
    runtime = runtime_of(12)
    rng = random.Random(seed)
    sampling = dataclasses.replace(SAMPLING, max_tokens=60)
    stems = [prompt_of(140, 100 + seed), prompt_of(140, 200 + seed)]
    prompts = [
        (*rng.choice(stems)[: rng.randrange(30, 140)], *prompt_of(rng.randrange(1, 30), index))
        for index in range(10)
    ]
    right = await solo(runtime, prompts, sampling)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:

        async def run(index: int) -> None:
            session = target_session(stream, prompts[index], sampling)
            if index % 4 == 3:
                await open_until_there_is_room(session, stream)
                await session.run(max_rounds=rng.randrange(1, 30))
                session.close()
                return
            await open_until_there_is_room(session, stream)
            answer = await session.run(right_and_wrong(right[index], prompts[index], index))
            assert answer.ids == right[index].ids
            assert answer.logprobs == right[index].logprobs

        async with asyncio.TaskGroup() as tasks:
            for index in range(len(prompts)):
                tasks.create_task(run(index))
        await worker.settled()
        memory = worker.engine.memory
        assert memory.prefix.num_hit_tokens > 0
        assert memory.num_used_pages == 0
    assert runtime.num_free_pages == runtime.num_pages


async def open_until_there_is_room(session: Any, stream: Any) -> None:
    while True:
        session.open(DraftTree.empty())
        event = (await stream.next(session.id)).event
        if not hasattr(event, "failure"):
            await session.verdict()
            return
        assert event.failure.reason == "RESOURCE_EXHAUSTED"
        session.epoch += 1
        await asyncio.sleep(0.005)


async def test_c53_a_draft_that_takes_pages_over_proposes_what_it_would_have(
    runtime_of: Callable[[int], Runtime],
):
    """It stands at the committed prefix, whatever part of it came from others' pages."""
    runtime = runtime_of(64)
    prompt = prompt_of(150, 3)

    async def proposals(worker: Seam) -> list[tuple[int, ...]]:
        async with worker.connect() as stream:
            session = draft_session(stream, prompt, GREEDY)
            session.open()
            await session.opened()
            drafted = []
            committed: tuple[int, ...] = ()
            rng = random.Random(1)
            for _ in range(25):
                tree = (await session.propose(committed, 4)).tree
                drafted.append(tree.tokens)
                # Some of it is right, and then comes another id.
                committed = (*tree.tokens[: rng.randrange(5)], rng.randrange(3, 400))
            session.close()
            await worker.settled()
            return drafted

    async with seam(runtime, Drafting, limits=OFF) as worker:
        cold = await proposals(worker)
    async with seam(runtime, Drafting) as worker:
        assert await proposals(worker) == cold
        assert worker.engine.memory.prefix.num_hit_tokens == 0
        assert await proposals(worker) == cold
        assert worker.engine.memory.prefix.num_hit_tokens == 128
        assert worker.engine.memory.num_used_pages == 0


async def test_c53_what_a_draft_guessed_is_no_part_of_what_others_take_over(
    runtime_of: Callable[[int], Runtime],
):
    runtime = runtime_of(64)
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        first = draft_session(stream, prompt_of(60, 4), GREEDY)
        first.open()
        await first.opened()
        # The KV goes past the page's end, on guesses.
        guesses = (await first.propose((), 10)).tree.tokens
        await worker.settled()
        second = draft_session(stream, (*first.tokens, *guesses, 5), GREEDY)
        second.open()
        await second.opened()
        await second.propose((), 1)
        await worker.settled()
        assert worker.engine.memory.prefix.num_hit_tokens == 0


@pytest.mark.parametrize("role", [Validating, Drafting])
async def test_what_ends_is_free_with_the_next_step(runtime_of: Callable[[int], Runtime], role: Any):
    """Closed while its prompt is being read, or between two rounds."""
    runtime = runtime_of(32)
    async with seam(runtime, role) as worker, worker.connect() as stream:
        for max_rounds in (0, 2):
            if role is Validating:
                session: Any = target_session(stream, prompt_of(400, max_rounds), GREEDY)
                session.open(DraftTree.empty())
                await session.opened()
                for _ in range(max_rounds):
                    await session.verdict()
                    session.verify(DraftTree.chain([5, 6]))
            else:
                session = draft_session(stream, prompt_of(400, max_rounds), GREEDY)
                session.open()
                await session.opened()
                for _ in range(max_rounds):
                    session.ask((), 3)
                    await session.proposal()
                session.ask((), 3)
            session.close()
            await stream.requests.join()
            # Behind the forward under way nothing of it is left.
            assert await worker.engine.call(lambda: len(worker.engine._registry)) == 0
            assert await worker.engine.call(lambda: runtime.num_free_pages) == 32
            while stream.num_unread(session.id):
                await stream.next(session.id)


async def test_a_validator_session_that_ends_by_itself_is_free_at_once(runtime_of: Callable[[int], Runtime]):
    runtime = runtime_of(32)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, prompt_of(100, 1), dataclasses.replace(GREEDY, max_tokens=1))
        opening = dataclasses.replace(session.opening, first=Verify(DraftTree.empty()))
        stream.send((dataclasses.replace(session.header(), round=1), opening))
        session.round = 1
        await session.opened()
        await session.verdict()
        assert await worker.engine.call(lambda: runtime.num_free_pages) == 32
        assert await worker.engine.call(lambda: len(worker.engine._registry)) == 0
