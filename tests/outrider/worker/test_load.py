"""What a worker tells of its load, on streams that carry something and on streams that rest."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from outrider.sampling import DraftTree, SamplingParameters
from outrider.worker import stream as streams
from services.validator.role import Validating
from tests.support.fake_runtime import FakeRuntime, Hold
from tests.support.waiting import until
from tests.support.worker_streams import seam, target_session

PROMPT = (5, 9, 11, 7)
GREEDY = SamplingParameters(temperature=0.0, max_tokens=20)


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(streams, "LOAD_EVERY_S", 0.01)


@asynccontextmanager
async def telling(worker):
    task = asyncio.create_task(worker.streams.tell_loads())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_each_message_tells_memory_and_utilisation():
    async with seam(FakeRuntime(), Validating) as worker, worker.connect() as stream:
        await target_session(stream, PROMPT, GREEDY).run(max_rounds=3)
        loads = [message.load for message in stream.messages]
        assert all(load.num_pages == 64 for load in loads)
        assert all(0 < load.memory_bytes < load.memory_limit_bytes for load in loads)
        assert all(0.0 <= load.utilization <= 1.0 for load in loads)
        assert loads[-1].utilization > 0.0


async def test_a_long_forward_shows_while_it_runs():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        hold = Hold(runtime)
        session = target_session(stream, PROMPT, GREEDY)
        session.open(DraftTree.empty())
        await hold.reached()
        before = worker.engine.load.utilization
        await asyncio.sleep(0.05)
        assert worker.engine.load.utilization > before
        hold.release()
        await session.opened()


async def test_a_stream_without_a_session_hears_of_the_others():
    async with seam(FakeRuntime(), Validating) as worker, worker.connect() as busy, worker.connect() as idle:
        async with telling(worker):
            session = target_session(busy, PROMPT, GREEDY)
            await session.run(max_rounds=2)
            await until(lambda: idle.messages[-1].load.num_sessions == 1)
            session.close()
            await until(lambda: idle.messages[-1].load.num_sessions == 0)
            await until(lambda: busy.messages[-1].load.num_sessions == 0)
        assert not any(message.events for message in idle.messages)


async def test_a_load_that_stays_is_told_once():
    async with seam(FakeRuntime(), Validating) as worker, worker.connect() as stream:
        await target_session(stream, PROMPT, GREEDY).run()
        async with telling(worker):
            await until(lambda: stream.messages[-1].load.utilization == 0.0)
            told = len(stream.messages)
            await asyncio.sleep(0.1)
        assert len(stream.messages) <= told + 1
