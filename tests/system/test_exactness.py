"""The promise, through real processes: answers do not depend on what is drafted or who shares the batch."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from outrider.client import Completion, OutriderClient
from outrider.runtime.checkpoints import checkpoint_folder
from outrider.sampling.parameters import SamplingParameters
from outrider.sampling.tree import DraftTree
from outrider.wire.generation import DraftSource, Speculation, sampling_from_pb, sampling_to_pb
from tests.support.calls import free_port, model_info, until_drafts_ready
from tests.support.cluster import Cluster, Process, start_all
from tests.support.models import with_noise
from tests.support.scripted_workers import DraftBrain, Proposer, Wish, hostile, scripted_draft, serving

NUM_TOKENS = 32
NUM_NEIGHBOURS = 7
# Weights off by this share of their own deviation: the draft is right about half the time.
NOISE = 0.12
PROMPTS = [
    "def fibonacci(n):\n",
    '{"users": [{"name": "Ada", "born": 1815}, {"name": "Alan", "born": ',
    "The river runs past the old mill, and in the evening",
    "Q: What is the capital of France?\nA:",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,",
    "Dear Sir or Madam,\n\nI am writing to",
    "<html>\n<body>\n<ul>\n<li>one</li>\n<li>two</li>\n",
    "SELECT name, born FROM users WHERE",
]


class Case(NamedTuple):
    k: int
    w: int
    source: str
    temperature: float
    penalties: bool
    neighbours: bool

    def sampling(self, index: int) -> SamplingParameters:
        """Of the session and of its neighbours, each of another kind."""
        plain = SamplingParameters(temperature=self.temperature, max_tokens=NUM_TOKENS, logprobs=3)
        filters = (
            plain,
            replace(plain, top_p=0.92),
            replace(plain, top_k=40),
            replace(plain, min_p=0.05),
        )
        if not self.penalties:
            return filters[index % len(filters)]
        return replace(
            filters[index % len(filters)],
            repetition_penalty=1.2,
            presence_penalty=0.5,
            frequency_penalty=0.3,
            logit_bias=((198, -2.0),),
            min_tokens=NUM_TOKENS // 2,
        )


def _seed(index: int) -> int:
    return 1000 + index


AXES: dict[str, list[Any]] = {
    "k": [0, 1, 2, 4, 8],
    "w": [1, 3],
    "source": ["model", "ngram", "oracle", "hostile"],
    "temperature": [0.0, 0.7, 1.0],
    "penalties": [False, True],
    "neighbours": [False, True],
}
# A width means nothing to a lookup, and nothing at depth 0 or 1 that depth 2 would not show.
EVERY_CASE = [
    case
    for case in itertools.starmap(Case, itertools.product(*AXES.values()))
    if case.w == 1 or (case.k > 1 and case.source != "ngram")
]


def _pairs(case: Case) -> set[tuple[str, object, str, object]]:
    items = case._asdict().items()
    return {(a, x, b, y) for (a, x), (b, y) in itertools.combinations(items, 2)}


def _pairwise() -> list[Case]:
    """Few cases in which every pair of values meets, found greedily."""
    missing = set().union(*(_pairs(case) for case in EVERY_CASE))
    chosen = []
    while missing:
        best = max(EVERY_CASE, key=lambda case: len(_pairs(case) & missing))
        chosen.append(best)
        missing -= _pairs(best)
    return chosen


@dataclass
class Stage:
    """One validator that all share; a front with a real draft, and one with a scripted draft."""

    validator: Process
    real: Process
    scripted: Process
    scripted_scheduler: Process
    scripted_port: int
    # Answers of plain decoding by (sampling, prompt, seed).
    plain: dict[tuple[SamplingParameters, int], Completion]

    async def answer(
        self, client: OutriderClient, sampling: SamplingParameters, index: int, speculation: Speculation
    ) -> Completion:
        prompt = PROMPTS[index]
        return await client.complete(prompt, sampling=sampling, seed=_seed(index), speculation=speculation)

    async def plain_answer(self, sampling: SamplingParameters, index: int) -> Completion:
        """Alone, k = 0."""
        if (sampling, index) not in self.plain:
            async with OutriderClient(self.real.address) as client:
                self.plain[sampling, index] = await self.answer(client, sampling, index, Speculation(k=0))
        return self.plain[sampling, index]

    def oracle(self) -> Proposer:
        """Proposes what plain decoding gave; for w > 1 a wrong candidate comes first."""

        def propose(wish: Wish) -> DraftTree:
            asked, start = wish.generation, wish.generation.prompt_length
            held = wish.tokens[start:]
            for (sampling, index), answer in self.plain.items():
                same = sampling_from_pb(sampling_to_pb(sampling)) == asked.sampling
                if same and asked.seed == _seed(index) and answer.token_ids[: len(held)] == held:
                    chain = answer.token_ids[len(held) :][: wish.k]
                    wrong = tuple(token + 1 for token in chain)
                    return DraftTree.from_candidates([wrong, chain] if wish.w > 1 else [chain])
            return DraftTree.empty()

        return propose


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("exactness")
    weights = checkpoint_folder(str(smollm2_path), "bfloat16", print)
    noisy = with_noise(weights, folder / "noisy", scale=NOISE)
    with Cluster(folder) as cluster:
        validator, draft = cluster.validator("smollm2"), cluster.draft(noisy)
        start_all(validator, draft)
        port = free_port()
        real = cluster.front([validator], [draft.address])
        scheduler = cluster.scheduler([validator], [f"127.0.0.1:{port}"]).start()
        scripted = cluster.gateway(scheduler).start()
        yield Stage(validator, real, scripted, scheduler, port, {})


async def _run(stage: Stage, case: Case, front: Process) -> list[Completion]:
    """The case's session first, then its neighbours."""
    indices = range(1 + NUM_NEIGHBOURS if case.neighbours else 1)
    source = DraftSource.NGRAM if case.source == "ngram" else DraftSource.MODEL
    speculation = Speculation(k=case.k, w=case.w, source=source)
    for index in indices:
        await stage.plain_answer(case.sampling(index), index)
    async with OutriderClient(front.address) as client:
        return await asyncio.gather(
            *(stage.answer(client, case.sampling(index), index, speculation) for index in indices)
        )


async def _check(stage: Stage, case: Case, front: Process) -> None:
    for index, answer in enumerate(await _run(stage, case, front)):
        plain = await stage.plain_answer(case.sampling(index), index)
        assert answer.token_ids == plain.token_ids, f"other ids in {case}, session {index}"
        assert answer.logprobs == plain.logprobs, f"other logprobs in {case}, session {index}"
        assert answer.text == plain.text
        assert len(answer.logprobs) == len(answer.token_ids)
        counters = answer.final.counters
        if case.source == "oracle" and case.k and case.w == 1:
            assert counters.accepted == counters.drafted > 0
        # Where its proposal was refused or late, n-gram may have guessed right.
        if case.source == "hostile" and not counters.missed_proposals:
            assert counters.accepted <= counters.drafted // 2
        if case.k == 0:
            assert counters.drafted == 0


def _of_source(cases: list[Case], *sources: str) -> list[Case]:
    return [case for case in cases if case.source in sources]


async def _check_real(stage: Stage, cases: list[Case]) -> None:
    drafted = accepted = 0
    for case in _of_source(cases, "model", "ngram"):
        await _check(stage, case, stage.real)
    case = Case(4, 1, "model", 0.0, penalties=False, neighbours=True)
    for answer in await _run(stage, case, stage.real):
        drafted += answer.final.counters.drafted
        accepted += answer.final.counters.accepted
    # Both verdicts must have been seen often, or the equality above would say little.
    assert 0.2 < accepted / drafted < 0.9


async def _check_scripted(stage: Stage, cases: list[Case], source: str) -> None:
    proposer = stage.oracle() if source == "oracle" else hostile(seed=5)
    info = await model_info(stage.validator.address)
    worker = scripted_draft(proposer, info)
    async with serving(worker, stage.scripted_port):
        await until_drafts_ready(stage.scripted_scheduler.address)
        for case in _of_source(cases, source):
            await _check(stage, case, stage.scripted)
        assert isinstance(worker.brain, DraftBrain)
        assert worker.brain.received


async def test_c01_c03_c04_c43_a_real_draft_and_ngram_change_nothing(stage: Stage) -> None:
    await _check_real(stage, _pairwise())


@pytest.mark.parametrize("source", ["oracle", "hostile"])
async def test_c01_c03_c43_a_perfect_and_a_hostile_draft_change_nothing(stage: Stage, source: str) -> None:
    await _check_scripted(stage, _pairwise(), source)


@pytest.mark.exactness
async def test_every_case_with_a_real_draft_and_ngram(stage: Stage) -> None:
    await _check_real(stage, EVERY_CASE)


@pytest.mark.exactness
@pytest.mark.parametrize("source", ["oracle", "hostile"])
async def test_every_case_with_a_perfect_and_a_hostile_draft(stage: Stage, source: str) -> None:
    await _check_scripted(stage, EVERY_CASE, source)
