"""Which rows go into a forward, and whose KV gives way."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.sampling import DraftTree, SamplingParameters
from outrider.worker.role import SHORT_TAIL, rows_to_take
from services.validator.role import Validating
from tests.support.fake_runtime import PAGE_SIZE, FakeRuntime, Hold
from tests.support.worker_streams import LIMITS, TargetSession, expected, seam, target_session

NO_DRAFT = DraftTree.empty()


def prompt_of(length: int, seed: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(3, 40) for _ in range(length))


def reference(runtime: FakeRuntime, prompt: Sequence[int], sampling: SamplingParameters) -> list[int]:
    info = runtime.info
    return expected(
        runtime.logits,
        prompt,
        sampling,
        vocab_size=info.vocab_size,
        eos_ids=info.eos_ids,
        context_length=info.context_length,
    ).ids


@given(missing=st.integers(0, 2000), room=st.integers(0, 1024), prompt_room=st.integers(0, 512))
def test_rows_to_take_are_bounded(missing: int, room: int, prompt_room: int):
    rows = rows_to_take(missing, room, prompt_room)
    assert 0 <= rows <= min(missing, room)
    if missing > SHORT_TAIL:
        assert rows <= prompt_room


async def test_what_waits_together_runs_in_one_forward():
    runtime = FakeRuntime()
    sampling = SamplingParameters(temperature=0.0, max_tokens=3)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        sessions = [target_session(stream, prompt_of(5, seed), sampling) for seed in range(6)]
        hold = Hold(runtime)
        for session in sessions:
            session.open(NO_DRAFT)
        await hold.reached()
        await stream.requests.join()
        hold.release()
        for session in sessions:
            await session.opened()
            await session.verdict()
        # The one that the engine began with, then all that had come meanwhile.
        assert sum(len(rows) for rows in runtime.steps) == 6
        assert len(runtime.steps) <= 3
        assert (
            max(verdict.timings.batch_size for session in sessions for verdict in session.answer.verdicts) > 1
        )


async def test_a_long_prompt_runs_in_chunks_and_others_go_on_between_them():
    runtime = FakeRuntime(eos_ids=())
    sampling = SamplingParameters(temperature=0.0, max_tokens=30)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        short = target_session(stream, prompt_of(5, 1), sampling)
        await short.run(max_rounds=1)
        long = target_session(stream, prompt_of(400, 2), sampling)
        hold = Hold(runtime)
        long.open(NO_DRAFT)
        await hold.reached()
        first = len(runtime.steps)
        short.verify(NO_DRAFT)
        await stream.requests.join()
        hold.release()
        await short.verdict()
        # It was answered by the very next forward, beside the prompt's second chunk.
        assert runtime.steps[first : first + 2] == [[64], [64, 1]] or runtime.steps[first : first + 2] == [
            [64],
            [1, 64],
        ]
        await long.opened()
        verdict = await long.verdict()
        assert verdict.timings.num_forwards == 7
        assert (await long.run()).ids == reference(runtime, long.opening.tokens, sampling)
        assert (await short.run()).ids == reference(runtime, short.opening.tokens, sampling)


@pytest.mark.parametrize("chunk", [64, 100, 256])
async def test_prompts_share_one_chunk_per_forward(chunk: int):
    runtime = FakeRuntime()
    limits = dataclasses.replace(LIMITS, prefill_chunk=chunk)
    sampling = SamplingParameters(temperature=0.0, max_tokens=1)
    async with seam(runtime, Validating, limits=limits) as worker, worker.connect() as stream:
        sessions = [target_session(stream, prompt_of(200, seed), sampling) for seed in range(4)]
        for session in sessions:
            session.open(NO_DRAFT)
        for session in sessions:
            await session.opened()
            await session.verdict()
            assert session.answer.ids == reference(runtime, session.opening.tokens, sampling)
    # What is left of a prompt at its end, a short tail, is not counted.
    assert all(sum(row for row in rows if row >= SHORT_TAIL) <= chunk for rows in runtime.steps)
    assert max(max(rows) for rows in runtime.steps) == min(chunk, 200)


async def test_a_forward_keeps_to_the_token_budget():
    runtime = FakeRuntime()
    limits = dataclasses.replace(LIMITS, token_budget=320)
    sampling = SamplingParameters(temperature=0.0, max_tokens=100)
    async with seam(runtime, Validating, limits=limits) as worker, worker.connect() as stream:
        sessions = [target_session(stream, prompt_of(10, seed), sampling) for seed in range(4)]
        wide = DraftTree(tuple([5] * 200), tuple([-1] * 200))
        for session in sessions:
            session.open(wide)
        for session in sessions:
            await session.opened()
            assert (await session.verdict()).drafted == 200
    assert all(sum(rows) <= 320 for rows in runtime.steps)


@pytest.mark.parametrize("num_pages", [3, 4, 6])
async def test_c29_preempted_sessions_give_the_same_ids(num_pages: int):
    """Room for a fraction of the sessions: KV is dropped and rebuilt again and again, and all end."""
    runtime = FakeRuntime(num_pages=num_pages, context_length=PAGE_SIZE * num_pages, eos_ids=())
    sampling = SamplingParameters(temperature=0.7, max_tokens=70)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        sessions = [target_session(stream, prompt_of(60 + seed, seed), sampling) for seed in range(5)]
        wanted = [reference(runtime, session.opening.tokens, sampling) for session in sessions]

        async def run(session: TargetSession, right: list[int], seed: int) -> None:
            rng = random.Random(seed)

            def drafter(tokens: Sequence[int]) -> DraftTree:
                done = len(tokens) - len(session.opening.tokens)
                path = right[done : done + rng.randrange(5)]
                return (
                    DraftTree.from_candidates([[1, 3], path]) if rng.random() < 0.5 else DraftTree.chain(path)
                )

            assert (await session.run(drafter)).ids == right

        async with asyncio.TaskGroup() as tasks:
            for seed, (session, right) in enumerate(zip(sessions, wanted, strict=True)):
                tasks.create_task(run(session, right, seed))
        await worker.settled()
    assert runtime.num_free_pages == runtime.num_pages


async def test_the_latest_admitted_session_gives_way():
    runtime = FakeRuntime(num_pages=4, context_length=256, eos_ids=())
    sampling = SamplingParameters(temperature=0.0, max_tokens=200)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        sessions = [target_session(stream, prompt_of(40, seed), sampling) for seed in range(4)]
        for session in sessions:
            await session.run(max_rounds=1)
        # The first one grows past its page: the fourth is dropped, not the second or third.
        await sessions[0].run(max_rounds=30)
        pages = await worker.engine.call(
            lambda: [held.sequence.num_pages for held in worker.engine._registry]
        )
        assert pages == [2, 1, 1, 0]
        for session in sessions:
            assert (await session.run(max_rounds=40)).ids == reference(
                runtime, session.opening.tokens, sampling
            )[: len(session.answer.ids)]


async def test_a_tree_that_the_pool_has_no_room_for_is_left_out():
    runtime = FakeRuntime(num_pages=1, context_length=512, eos_ids=())
    sampling = SamplingParameters(temperature=0.0, max_tokens=20)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        assert stream.welcome.info.context_length == PAGE_SIZE  # what the pool holds
        session = target_session(stream, prompt_of(30, 0), sampling)
        wide = DraftTree(tuple([5] * 100), tuple([-1] * 100))
        session.open(wide)
        await session.opened()
        assert (await session.verdict()).drafted == 0
        assert (await session.run()).ids == reference(runtime, session.opening.tokens, sampling)


async def test_a_prompt_beyond_the_pool_is_refused_at_open():
    runtime = FakeRuntime(num_pages=1, context_length=512)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, prompt_of(64, 0), SamplingParameters())
        session.open(NO_DRAFT)
        assert (await session.error()).failure.reason == "CONTEXT_EXCEEDED"
