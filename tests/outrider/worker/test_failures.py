"""A session that fails ends alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outrider.sampling import DraftTree, SamplingParameters
from outrider.worker.engine import Engine
from outrider.worker.failures import as_session_error
from outrider.worker.stream import Streams
from services.validator.role import Validating
from tests.support.fake_runtime import FakeRuntime, Hold
from tests.support.worker_streams import LIMITS, PlainCodec, Seam, expected, seam, target_session

PROMPT = (5, 9, 11, 7)
SAMPLING = SamplingParameters(temperature=0.0, max_tokens=12, logit_bias=((33, -100.0),))
NO_DRAFT = DraftTree.empty()


async def run_beside(runtime: FakeRuntime, role_of: Any, poisoned: tuple[int, ...]) -> str:
    """Three sessions in one batch, one of them poisoned: its reason; the others are as if alone."""
    right = expected(
        runtime.logits,
        PROMPT,
        SAMPLING,
        vocab_size=40,
        eos_ids=runtime.info.eos_ids,
        context_length=512,
    ).ids
    async with seam(runtime, role_of) as worker, worker.connect() as stream:
        good = [target_session(stream, PROMPT, SAMPLING) for _ in range(2)]
        bad = target_session(stream, poisoned, SAMPLING)
        hold = Hold(runtime)
        for session in (good[0], bad, good[1]):
            session.open(NO_DRAFT)
        await hold.reached()
        await stream.requests.join()
        hold.release()
        await bad.opened()
        failure = (await bad.error()).failure
        for session in good:
            await session.opened()
            await session.verdict()
            assert (await session.run()).ids == right
        # The worker knows the failed one no more.
        bad.verify(NO_DRAFT)
        assert (await bad.stale()).epoch == 0
        await worker.settled()
        assert runtime.num_free_pages == runtime.num_pages
    return failure.reason


async def test_nan_ends_one_session():
    runtime = FakeRuntime()
    runtime.nan_token = 33
    assert await run_beside(runtime, Validating, (5, 33, 6)) == "NON_FINITE_LOGITS"


async def test_a_forward_that_fails_is_taken_apart_to_find_the_session():
    runtime = FakeRuntime()
    runtime.crash_token = 33
    assert await run_beside(runtime, Validating, (5, 33, 6)) == "INTERNAL"


@pytest.mark.parametrize("place", ["start", "plan", "advance"])
async def test_an_exception_inside_one_job_ends_its_session(place: str):
    def fail(*arguments: Any) -> Any:
        raise ZeroDivisionError("a secret of the implementation")

    class Faulty(Validating):
        def start(self, session: Any, round_: Any) -> Any:
            poisoned = 33 in session.tokens
            if poisoned and place == "start":
                fail()
            job = super().start(session, round_)
            if poisoned:
                setattr(job, place, fail)
            return job

    assert await run_beside(FakeRuntime(), Faulty, (5, 33, 6)) == "INTERNAL"


def test_a_fault_of_ours_is_told_without_details():
    error = as_session_error(ZeroDivisionError("a secret of the implementation"))
    assert error.reason == "INTERNAL"
    assert "secret" not in error.message


async def test_a_crash_of_the_engine_ends_the_streams_and_is_told():
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    runtime: Any = FakeRuntime()
    engine = Engine(runtime, Validating, LIMITS, on_crash=lambda: loop.call_soon_threadsafe(told.set))
    engine.start()
    worker = Seam(engine, Streams(engine, PlainCodec()))

    def crash() -> None:
        raise KeyError("unforeseen")

    async with worker.connect() as stream, asyncio.timeout(10):
        engine._inbox.put(crash)
        await told.wait()
        await stream.ended.wait()
        assert "engine has failed" in str(stream.error)
    await asyncio.to_thread(engine.join)
