"""Prefix reuse through real processes: faster, equal to the bit, and within a tenant and salt only."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from outrider.client import Completion, OutriderClient, PromptIds, Speculation
from outrider.sampling.parameters import SamplingParameters
from outrider.wire.generation import DraftSource
from tests.support.calls import until_drafts_ready
from tests.support.cluster import Cluster, Process, start_all
from tests.support.deployment import until_idle
from tests.support.divergence import Asked
from tests.support.metrics import scrape
from tests.support.truth import Truth

METRICS = ("--metrics-port", "0")
WORKER = ("--num-threads", "1", "--kv-budget-mib", "4", "--prefill-chunk", "64", *METRICS)
NUM_TOKENS = 40
STEM = tuple(random.Random(5).randrange(3, 400) for _ in range(150))
"""Two full pages, and a little more."""
WAYS = {
    "greedy": SamplingParameters(temperature=0.0, max_tokens=NUM_TOKENS, logprobs=2, ignore_eos=True),
    "sampled": SamplingParameters(
        temperature=0.8, top_p=0.95, max_tokens=NUM_TOKENS, logprobs=2, ignore_eos=True
    ),
}


@dataclass
class Running:
    """A target, and a draft with the same weights: while it stands where it should it is always right."""

    workers: list[Process]
    gateway: Process
    truth: Truth

    async def ask(self, asked: Asked, k: int, **options: Any) -> Completion:
        """One answer, which must be the target's by definition."""
        async with OutriderClient(self.gateway.address) as client:
            answer = await client.complete(
                PromptIds(asked.prompt),
                sampling=asked.sampling,
                seed=asked.seed,
                speculation=Speculation(k=k, source=DraftSource.MODEL),
                **options,
            )
        right = self.truth.answer(asked)
        assert list(answer.token_ids) == right.ids
        assert [entry.top_ids for entry in answer.logprobs] == [entry.top_ids for entry in right.logprobs]
        return answer

    async def hits(self) -> list[float]:
        """Tokens that target and draft took over so far."""
        await until_idle(self.workers)
        told = [await asyncio.to_thread(scrape, worker) for worker in self.workers]
        return [each.total("cache_hits_total", source="prefix") for each in told]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, target: Path) -> Iterator[Running]:
    with Cluster(tmp_path_factory.mktemp("prefix")) as cluster:
        workers = [cluster.validator(target, *WORKER), cluster.draft(target, *WORKER)]
        start_all(*workers)
        # A late proposal would be a missed one.
        patient = ("--draft-wait-ms", "20000", *METRICS)
        scheduler = cluster.scheduler(workers[:1], [workers[1].address], *patient).start()
        asyncio.run(until_drafts_ready(scheduler.address))
        gateway = cluster.gateway(scheduler, "--tenant-metadata", "x-tenant", *METRICS).start()
        yield Running(workers, gateway, Truth.load(target))


def asked(way: str, own: int, *, length: int = 20) -> Asked:
    """The stem, and something of its own."""
    tail = tuple(random.Random(own).randrange(3, 400) for _ in range(length))
    return Asked((*STEM, *tail), WAYS[way])


@pytest.mark.parametrize("way", sorted(WAYS))
async def test_c54_cold_and_warm_answers_are_equal(running: Running, way: str):
    question = asked(way, 1)
    salt = {"cache_salt": f"c54-{way}"}
    before = await running.hits()
    cold = [await running.ask(question, k, **salt) for k in (4, 0)]
    warm = [await running.ask(question, k, **salt) for k in (0, 4, 7)]
    assert len({answer.token_ids for answer in (*cold, *warm)}) == 1
    assert len({answer.logprobs for answer in (*cold, *warm)}) == 1
    target, draft = (after - old for after, old in zip(await running.hits(), before, strict=True))
    # 170 tokens: 128 each time, on both sides; a session that drafts nothing opens no draft.
    assert (target, draft) == (4 * 128, 2 * 128)


@pytest.mark.parametrize("way", sorted(WAYS))
async def test_c53_a_draft_that_begins_with_pages_of_others_is_as_right_as_one_that_does_not(
    running: Running, way: str
):
    salt = {"cache_salt": f"c53-{way}"}
    before = await running.hits()
    for own in range(3):
        answer = await running.ask(asked(way, own), 4, **salt)
        counters = answer.final.counters
        assert counters.missed_proposals == 0
        assert counters.accepted == counters.drafted > 0
        assert counters.rounds == -(-(NUM_TOKENS - 1) // 5)
    target, draft = (after - old for after, old in zip(await running.hits(), before, strict=True))
    assert (target, draft) == (2 * 128, 2 * 128)


async def test_c54_the_next_turn_of_a_chat_goes_on_behind_the_answer(running: Running):
    salt = {"cache_salt": "turns"}
    first = asked("greedy", 9, length=10)
    answer = await running.ask(first, 4, **salt)
    before = await running.hits()
    turn = replace(first, prompt=(*first.prompt, *answer.token_ids, 7, 8))
    answer = await running.ask(turn, 4, **salt)
    assert answer.final.counters.accepted == answer.final.counters.drafted > 0
    target, draft = (after - old for after, old in zip(await running.hits(), before, strict=True))
    # 199 tokens had KV at the target: three pages, the last of them mostly answer.
    assert target == 192
    assert draft >= 128


@pytest.mark.parametrize(
    ("first", "second", "num_hit"),
    [
        (("blue", "x"), ("blue", "x"), 128),
        (("blue", "y"), ("red", "y"), 0),
        (("blue", "z"), ("blue", "w"), 0),
    ],
    ids=["the same", "another tenant", "another salt"],
)
async def test_c69_pages_are_shared_within_a_tenant_and_salt_only(
    running: Running, first: tuple[str, str], second: tuple[str, str], num_hit: int
):
    question = asked("greedy", 2)

    async def ask(tenant: str, salt: str) -> None:
        await running.ask(question, 4, cache_salt=salt, metadata=[("x-tenant", tenant)])

    await ask(*first)
    before = await running.hits()
    await ask(*second)
    assert [after - old for after, old in zip(await running.hits(), before, strict=True)] == [num_hit] * 2


async def test_c29_c54_answers_that_share_pages_while_they_run_are_equal(running: Running):
    questions = [asked(way, own) for own in range(20, 26) for way in sorted(WAYS)]
    before = await running.hits()
    await asyncio.gather(
        *(
            running.ask(question, k, cache_salt="together")
            for question, k in zip(questions, (0, 2, 4, 7) * 3, strict=True)
        )
    )
    assert all(after > old for after, old in zip(await running.hits(), before, strict=True))
