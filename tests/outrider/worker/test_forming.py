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
from outrider.wire.worker import Opened, SessionError
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


async def open_when_there_is_room(session: TargetSession) -> None:
    """Open, and have the first token; again and again while memory is short."""
    while True:
        session.open(NO_DRAFT)
        event = (await session.stream.next(session.id)).event
        if isinstance(event, Opened):
            await session.verdict()
            return
        assert isinstance(event, SessionError), event
        assert (event.failure.reason, event.failure.retryable) == ("RESOURCE_EXHAUSTED", True)
        assert event.failure.retry_after_ms
        session.epoch += 1
        await asyncio.sleep(0.002)


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

            await open_when_there_is_room(session)
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


async def test_a_short_prompt_overtakes_a_long_one():
    runtime = FakeRuntime(eos_ids=(), context_length=2000)
    sampling = SamplingParameters(temperature=0.0, max_tokens=1)
    limits = dataclasses.replace(LIMITS, prefill_chunk=200)
    async with seam(runtime, Validating, limits=limits) as worker, worker.connect() as stream:
        long, short = (target_session(stream, prompt_of(length, length), sampling) for length in (1600, 100))
        hold = Hold(runtime)
        long.open(NO_DRAFT)
        await hold.reached()
        short.open(NO_DRAFT)
        await stream.requests.join()
        hold.release()
        await short.opened()
        assert (await short.verdict()).timings.num_forwards == 1
        await long.opened()
        verdict = await long.verdict()
    # The long one had half of the chunk in that forward, and all of it in the others.
    assert [sorted(rows) for rows in runtime.steps[:3]] == [[200], [100, 100], [200]]
    assert verdict.timings.num_forwards == 9
    assert long.answer.ids == reference(runtime, long.opening.tokens, sampling)
    assert short.answer.ids == reference(runtime, short.opening.tokens, sampling)


async def test_a_stream_of_short_prompts_does_not_starve_a_long_one():
    runtime = FakeRuntime(num_pages=128, eos_ids=(), context_length=2000)
    sampling = SamplingParameters(temperature=0.0, max_tokens=1)
    limits = dataclasses.replace(LIMITS, prefill_chunk=128)
    async with seam(runtime, Validating, limits=limits) as worker, worker.connect() as stream:
        long = target_session(stream, prompt_of(640, 1), sampling)
        long.open(NO_DRAFT)
        shorts = [target_session(stream, prompt_of(90, 10 + seed), sampling) for seed in range(40)]
        for session in shorts:
            session.open(NO_DRAFT)
        await long.opened()
        # At least half a chunk in each forward: 64 rows of 640.
        assert (await long.verdict()).timings.num_forwards <= 10
        for session in shorts:
            await session.opened()
            await session.verdict()


async def test_verification_goes_on_beside_prompts_in_every_forward():
    runtime = FakeRuntime(num_pages=128, eos_ids=(), context_length=2000)
    sampling = SamplingParameters(temperature=0.0, max_tokens=200)
    limits = dataclasses.replace(LIMITS, prefill_chunk=64, token_budget=320)
    async with seam(runtime, Validating, limits=limits) as worker, worker.connect() as stream:
        decoding = [target_session(stream, prompt_of(5, seed), sampling) for seed in range(3)]
        for session in decoding:
            await session.run(max_rounds=1)
        prompts = [target_session(stream, prompt_of(640, 50 + seed), sampling) for seed in range(3)]
        for session in prompts:
            session.open(NO_DRAFT)
        for _ in range(5):
            for session in decoding:
                session.verify(NO_DRAFT)
            for session in decoding:
                # The next forward that begins takes it.
                assert (await session.verdict()).timings.num_forwards == 1
        for session in (*decoding, *prompts):
            session.close()
        await worker.settled()
    # One chunk, perhaps the short tail of another prompt, and one row of each that decodes.
    assert max(sum(rows) for rows in runtime.steps) <= 64 + SHORT_TAIL + 3
    assert runtime.num_free_pages == runtime.num_pages


@pytest.mark.parametrize(("chunk", "length", "less"), [(128, 1000, 70), (256, 230, 1), (256, 200, 0)])
async def test_prompts_that_begin_alike_and_come_together_are_run_once(chunk: int, length: int, less: int):
    runtime = FakeRuntime(num_pages=128, eos_ids=(), context_length=2000)
    limits = dataclasses.replace(LIMITS, prefill_chunk=chunk)
    sampling = SamplingParameters(temperature=0.8, max_tokens=3)
    stem = prompt_of(length, 3)
    # The later ones are shorter, and could overtake; or the first one leaves room in its chunk.
    prompts = [stem[: length - less * number] for number in range(6)]
    async with seam(runtime, Validating, limits=limits) as worker, worker.connect() as stream:
        sessions = [target_session(stream, prompt, sampling) for prompt in prompts]
        hold = Hold(runtime)
        for session in sessions:
            session.open(NO_DRAFT)
        await hold.reached()
        await stream.requests.join()
        hold.release()
        for session in sessions:
            await session.opened()
            await session.verdict()
            assert (await session.run()).ids == reference(runtime, session.opening.tokens, sampling)
    own = sum(len(prompt) - (len(prompt) - 1) // PAGE_SIZE * PAGE_SIZE for prompt in prompts)
    shared = (length - 1) // PAGE_SIZE * PAGE_SIZE
    # The full pages once; each one's own end; two rows for its second and third token.
    assert sum(sum(step) for step in runtime.steps) == shared + own + 6 * 2


async def test_a_session_whose_kv_was_dropped_takes_back_what_is_still_there():
    runtime = FakeRuntime(num_pages=4, context_length=256, eos_ids=())
    sampling = SamplingParameters(temperature=0.0, max_tokens=200)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        old, young = (target_session(stream, prompt_of(70, seed), sampling) for seed in range(2))
        await old.run(max_rounds=1)
        await young.run(max_rounds=1)
        await old.run(max_rounds=70)
        await worker.settled()
        assert worker.engine.memory.num_preemptions == 1
        old.close()
        runtime.num_hit_tokens = 0
        assert (await young.run(max_rounds=40)).ids == reference(runtime, young.opening.tokens, sampling)[:41]
        assert runtime.num_hit_tokens == 64


async def test_a_rebuilt_session_commits_a_page_before_it_gives_way_to_any_but_the_oldest():
    runtime = FakeRuntime(num_pages=6, context_length=384, eos_ids=())
    sampling = SamplingParameters(temperature=0.0, max_tokens=300)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        sessions = [target_session(stream, prompt_of(100, seed), sampling) for seed in range(3)]
        for session in sessions:
            await session.run(max_rounds=1)
        # The oldest grows to three pages: the youngest is dropped.
        await sessions[0].run(max_rounds=40)
        await worker.settled()

        def pages() -> list[int]:
            return [held.sequence.num_pages for held in worker.engine._registry]

        def protected() -> list[int]:
            return [held.protected_until for held in worker.engine._registry]

        assert await worker.engine.call(pages) == [3, 2, 0]
        # It is protected for a page from where it stood.
        assert await worker.engine.call(protected) == [0, 0, len(sessions[2].tokens) + 64]
        # All go on side by side, and all come to their end.
        async with asyncio.TaskGroup() as tasks:
            for session in sessions:
                tasks.create_task(session.run(max_rounds=200))
        for session in sessions:
            right = reference(runtime, session.opening.tokens, sampling)
            assert session.answer.ids == right[: len(session.answer.ids)]
            assert len(session.answer.ids) >= 200


async def test_an_opening_that_memory_has_no_room_for_is_refused_until_there_is():
    runtime = FakeRuntime(num_pages=6, context_length=384, eos_ids=())
    sampling = SamplingParameters(temperature=0.0, max_tokens=200)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        first, second, third = (
            target_session(stream, prompt_of(length, length), sampling) for length in (130, 131, 100)
        )
        # Before either has run a row: what was promised counts.
        for session in (first, second, third):
            session.open(NO_DRAFT)
        failure = (await third.error()).failure
        assert (failure.reason, failure.retryable) == ("RESOURCE_EXHAUSTED", True)
        assert failure.retry_after_ms
        assert "kv-budget-mib" in failure.message
        for session in (first, second):
            await session.opened()
            await session.verdict()
        # Those that are in are never refused, though they outgrow the pool: they need 7 pages.
        await first.run(max_rounds=80)
        await second.run(max_rounds=1)
        first.close()
        await worker.settled()
        # What the first one has left is kept, and counts as free.
        third.epoch, third.round = 2, 0
        await third.run(max_rounds=3)
        for session in (second, third):
            right = reference(runtime, session.opening.tokens, sampling)
            assert session.answer.ids == right[: len(session.answer.ids)]
