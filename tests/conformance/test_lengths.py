"""Drafting ends where the context, the answer, the draft's own context or the operator ends it."""

import asyncio
import random
from dataclasses import replace

import pytest
import pytest_asyncio

from outrider.client import DraftSource, FinishReason, Speculation
from tests.support.divergence import Asked
from tests.support.in_process import running
from tests.support.known_drafts import known_draft
from tests.support.models import CONTEXT_LENGTH, tiny_model

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHORT_CONTEXT = 128
UNTIL = 60


def prompt_of(num_tokens: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(random.Random(seed).randrange(3, 400) for _ in range(num_tokens))


@pytest.mark.parametrize("way", ["greedy", "sampled"])
@pytest.mark.parametrize("left", [1, 2, 3, 5, 9])
async def test_c44_drafting_near_the_end_of_the_context_never_raises(house, ways, way, left):
    asked = Asked(prompt_of(CONTEXT_LENGTH - left), ways[way])
    for k, w in ((8, 1), (8, 3), (1, 1)):
        house.propose(known_draft("oracle", house.truth))
        for answer in (await house.ask_real(asked, k, w), await house.ask(asked, k, w)):
            house.check(answer, asked)
            assert len(answer.token_ids) == left
            assert answer.final.finish_reason is FinishReason.LENGTH
        if (k, w) == (8, 1):
            # One token comes with the prompt, and the last place is for the target's own.
            assert answer.final.counters.drafted == max(0, left - 2)


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 6])
async def test_c44_the_end_of_the_answer_bounds_the_depth(house, prompts, ways, max_tokens):
    asked = Asked(prompts[0], replace(ways["sampled"], max_tokens=max_tokens))
    house.propose(known_draft("oracle", house.truth))
    for w in (1, 3):
        answer = await house.ask(asked, 8, w)
        house.check(answer, asked)
        assert len(answer.token_ids) == max_tokens
        # The first token comes with the prompt; the last one is the target's own.
        assert answer.final.counters.accepted == max(0, max_tokens - 2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def short(target, tmp_path_factory):
    """The target's own weights as draft, with a shorter context."""
    draft = tiny_model(tmp_path_factory.mktemp("short"), seed=2, context_length=SHORT_CONTEXT)
    async with running(target, draft=draft) as house:
        yield house


@pytest.mark.parametrize("way", ["greedy", "sampled"])
async def test_c45_a_request_beyond_the_drafts_context_runs_without_it_and_disturbs_nobody(
    short, prompts, ways, way
):
    long = Asked(prompt_of(200), ways[way])
    others = [Asked(prompt, ways[way]) for prompt in prompts]
    for each in (long, *others):
        short.truth.answer(each)
    too_long, *drafted = await asyncio.gather(*(short.ask_real(each, 4, 1) for each in (long, *others)))
    short.check(too_long, long)
    assert too_long.final.counters.drafted == 0
    for answer, asked in zip(drafted, others, strict=True):
        short.check(answer, asked)
        assert answer.final.counters.accepted == answer.final.counters.drafted > 10
    # The draft goes on to serve whoever comes next.
    again = await short.ask_real(others[0], 4, 3)
    short.check(again, others[0])
    assert again.final.counters.accepted > 10


@pytest.mark.parametrize("w", [1, 3])
@pytest.mark.parametrize("way", ["greedy", "sampled"])
async def test_c46_generation_crosses_the_drafts_limit_in_the_middle_of_an_answer(short, ways, way, w):
    asked = Asked(prompt_of(SHORT_CONTEXT - 16), ways[way])
    answer = await short.ask_real(asked, 4, w)
    short.check(answer, asked)
    counters = answer.final.counters
    # Up to the limit nearly all was drafted, and behind it nothing.
    assert 10 <= counters.accepted <= 17
    assert counters.rounds > 15
    edge = Asked(prompt_of(SHORT_CONTEXT), ways[way])
    at_limit = await short.ask_real(edge, 4, w)
    short.check(at_limit, edge)


@pytest.mark.parametrize("speculation", [Speculation(k=0), Speculation(k=4, source=DraftSource.NONE)])
async def test_c47_speculation_is_switched_off_per_request(house, prompts, ways, speculation):
    asked = Asked(prompts[0], ways["greedy"])
    house.propose(known_draft("oracle", house.truth))
    off = await house.ask(asked, speculation=speculation)
    on = await house.ask(asked)
    house.check(off, asked)
    house.check(on, asked)
    assert off.final.counters.drafted == 0 < on.final.counters.accepted
    assert off.final.counters.tau == 1.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited(target):
    async with running(target, draft=target, scheduler_settings={"draft_until": UNTIL}) as house:
        yield house


@pytest.mark.parametrize("source", [DraftSource.MODEL, DraftSource.NGRAM])
async def test_c47_speculation_is_switched_off_by_length(limited, ways, source):
    greedy = ways["greedy"]
    loop = replace(greedy, logit_bias=((50, 100.0),))  # n-gram lookup finds it too
    inside, across, beyond = (
        Asked(prompt_of(length), replace(loop, max_tokens=num))
        for length, num in ((20, 32), (UNTIL - 16, 32), (UNTIL, 16))
    )
    answers = {}
    for asked in (inside, across, beyond):
        answers[asked] = await limited.ask_real(asked, speculation=Speculation(k=4, source=source))
        limited.check(answers[asked], asked)
    counters = {asked: answer.final.counters for asked, answer in answers.items()}
    assert counters[inside].accepted > 20
    assert 0 < counters[across].accepted <= 19
    assert counters[beyond].drafted == 0
