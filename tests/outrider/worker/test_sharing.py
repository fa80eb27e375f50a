"""Who may read whose prompt pages, through the engine."""

from __future__ import annotations

import dataclasses
import random

import pytest

from outrider.sampling import SamplingParameters
from outrider.worker.sharing import PrefixSharing
from services.validator.role import Validating
from tests.support.fake_runtime import FakeRuntime
from tests.support.worker_streams import LIMITS, seam, target_session

GREEDY = SamplingParameters(temperature=0.0, max_tokens=2)
PROMPT = tuple(random.Random(1).randrange(3, 40) for _ in range(200))
APART = PrefixSharing()
TOGETHER = PrefixSharing(across_tenants=True)
OFF = PrefixSharing(enabled=False)


@pytest.mark.parametrize(
    ("sharing", "first", "second", "num_hit"),
    [
        (APART, ("blue", ""), ("blue", ""), 192),
        (APART, ("blue", ""), ("red", ""), 0),
        (APART, ("blue", ""), ("", ""), 0),
        (APART, ("blue", "salt"), ("blue", "salt"), 192),
        (APART, ("blue", "salt"), ("blue", "pepper"), 0),
        (APART, ("blue", "x"), ("bluex", ""), 0),
        (TOGETHER, ("blue", ""), ("red", ""), 192),
        (TOGETHER, ("blue", "salt"), ("red", "salt"), 192),
        (TOGETHER, ("blue", "salt"), ("red", "pepper"), 0),
        (OFF, ("blue", ""), ("blue", ""), 0),
    ],
)
async def test_c69_pages_are_shared_within_a_tenant_and_salt_only(
    sharing: PrefixSharing, first: tuple[str, str], second: tuple[str, str], num_hit: int
):
    runtime = FakeRuntime()
    limits = dataclasses.replace(LIMITS, sharing=sharing)
    async with seam(runtime, Validating, limits=limits) as worker, worker.connect() as stream:
        answers = []
        for tenant, salt in (first, second):
            session = target_session(stream, PROMPT, GREEDY)
            session.opening = dataclasses.replace(session.opening, tenant=tenant, cache_salt=salt)
            answers.append((await session.run()).ids)
        await worker.settled()
        assert worker.engine.memory.prefix.num_hit_tokens == num_hit
    assert answers[0] == answers[1]


async def test_a_follow_up_skips_the_answer_too():
    """The next turn of a chat begins with the last one's prompt and answer."""
    runtime = FakeRuntime(eos_ids=())
    sampling = SamplingParameters(temperature=0.0, max_tokens=100)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        answer = (await target_session(stream, PROMPT, sampling).run()).ids
        await target_session(stream, (*PROMPT, *answer, 7, 8, 9), sampling).run(max_rounds=1)
        await worker.settled()
        # 299 of 300 tokens had KV: 4 full pages.
        assert worker.engine.memory.prefix.num_hit_tokens == 256


async def test_another_model_begins_with_nothing_and_the_counters_go_on():
    first, second = FakeRuntime(), FakeRuntime(salt="other", eos_ids=())
    async with seam(first, Validating) as worker, worker.connect() as stream:
        for _ in range(2):
            await target_session(stream, PROMPT, GREEDY).run()
        await worker.engine.swap(second)
    async with seam(second, Validating) as worker, worker.connect() as stream:
        assert second.num_hit_tokens == 0
        await target_session(stream, PROMPT, GREEDY).run()
        await worker.settled()
        assert worker.engine.memory.prefix.num_hit_tokens == 0
