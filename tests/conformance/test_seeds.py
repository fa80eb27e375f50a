"""Noise belongs to the request: nobody else's work, and no generator, has a part in an answer."""

import ast
import asyncio
import math
from dataclasses import replace
from pathlib import Path

import pytest

import outrider
from outrider.client import Delta, PromptIds, Speculation
from outrider.runtime.runtime import Runtime
from outrider.sampling.parameters import SamplingParameters
from tests.support.divergence import Asked, divergence
from tests.support.known_drafts import known_draft
from tests.support.truth import Truth

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEEDS = (0, 7, 2**53, 2**64 - 1)
ROOT = Path(outrider.__file__).parent.parent
# Before the first session: ids that tell one process from another, and tokens of the self-test.
DRAWING_AT_START = {"outrider/runtime/loading.py", "outrider/runtime/numerics.py"}
# What stands between logits and a committed token, on either side.
DECIDING = (
    "outrider/sampling",
    "outrider/runtime",
    "outrider/worker",
    "services/validator",
    "services/draft",
)


@pytest.mark.parametrize("seed", SEEDS)
async def test_c27_the_seed_reaches_the_noise_unchanged(house, prompts, ways, seed):
    house.propose(known_draft("wrong at 2", house.truth))
    for choice in (0, 3):
        asked = Asked(prompts[0], ways["sampled"], seed, choice)
        once, again = await house.ask(asked), await house.ask(asked, 3, 2)
        house.check(once, asked)
        assert once.final.seed == seed
        assert (once.token_ids, once.logprobs) == (again.token_ids, again.logprobs)
    different = {tuple(house.truth.answer(Asked(prompts[0], ways["sampled"], each)).ids) for each in SEEDS}
    assert len(different) == len(SEEDS)


async def test_c27_a_seed_that_was_drawn_gives_the_answer_again(house, prompts, ways):
    prompt = PromptIds(prompts[0])
    drawn = await house.scripted.complete(prompt, sampling=ways["sampled"])
    house.check(drawn, Asked(prompts[0], ways["sampled"], drawn.final.seed))


async def test_c28_a_position_reads_the_same_numbers_again(house, prompts, ways):
    # With each draft other positions are discarded and read again, up to eight times.
    asked = Asked(prompts[1], replace(ways["sampled"], temperature=1.3, top_p=1.0))
    for kind, k in (("wrong at 0", 8), ("wrong at 7", 8), ("wrong at 1", 5), ("oracle", 7)):
        house.propose(known_draft(kind, house.truth))
        house.check(await house.ask(asked, k), asked)


async def test_c28_sessions_of_one_seed_draw_the_same_and_take_nothing_from_each_other(house, prompts, ways):
    asked = Asked(prompts[0], ways["sampled"])
    answers = await asyncio.gather(*(house.ask_real(asked, k) for k in (0, 1, 4, 8)))
    for answer in answers:
        house.check(answer, asked)


def _drawing(tree: ast.AST) -> list[str]:
    """Names by which a module could draw from a generator."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [each.name for each in names if each.name in ("random", "secrets")]
            case ast.ImportFrom(module="random" | "secrets" | "numpy.random" as module):
                found.append(module)
            case ast.Attribute(attr="default_rng" | "multinomial" | "Generator" | "rand" | "randn" as name):
                found.append(name)
            case ast.Attribute(value=ast.Name(id="np" | "numpy" | "torch"), attr="random" as name):
                found.append(name)
    return found


async def test_c29_nothing_that_decides_draws_from_a_generator():
    modules = [path for folder in DECIDING for path in (ROOT / folder).rglob("*.py")]
    assert len(modules) > 40
    drawing = {
        str(path): names for path in modules if (names := _drawing(ast.parse(path.read_text("utf-8"))))
    }
    assert {path.removeprefix(f"{ROOT}/") for path in drawing} <= DRAWING_AT_START


@pytest.mark.parametrize("order", [1, -1])
async def test_c29_batches_and_their_order_change_nothing(house, prompts, ways, order, monkeypatch):
    sizes = []
    step = Runtime.step

    def noted(self, segments):
        sizes.append(len({id(segment.sequence) for segment in segments}))
        return step(self, segments)

    sampled = ways["sampled"]
    kinds = (sampled, ways["greedy"], replace(sampled, presence_penalty=0.7), replace(sampled, top_k=5))
    asked = [Asked(prompt, kind, seed) for prompt in prompts for seed, kind in enumerate(kinds)]
    for each in asked:
        house.truth.answer(each)
    monkeypatch.setattr(Runtime, "step", noted)
    answers = await asyncio.gather(
        *(house.ask_real(each, index % 7, 1 + index % 3) for index, each in enumerate(asked[::order]))
    )
    for each, answer in zip(asked[::order], answers, strict=True):
        house.check(answer, each)
    assert max(sizes) >= 4


async def test_c30_the_acceptance_trace_of_greedy_decoding_repeats(house, prompts, ways):
    asked = Asked(prompts[0], ways["greedy"])

    async def trace() -> list[int]:
        # What earlier sessions left in the store would make later ones draft better.
        events = house.real.generate(
            PromptIds(asked.prompt),
            sampling=asked.sampling,
            seed=1,
            speculation=Speculation(k=4),
            store=False,
        )
        return [
            len(event.token_ids) async for event in events if isinstance(event, Delta) and event.token_ids
        ]

    first = await trace()
    assert len(set(first)) > 2, "acceptance does not vary, so nothing is shown"
    assert await trace() == first
    # Beside others as well.
    others = [house.ask_real(Asked(prompt, ways["sampled"]), 4) for prompt in prompts]
    beside, *_ = await asyncio.gather(trace(), *others)
    assert beside == first


@pytest.fixture(scope="module")
def in_float32(target):
    return Truth.load(target, "float32")


async def test_c31_a_difference_is_reported_with_position_ids_and_margin(house, prompts, in_float32):
    # Other arithmetic is another numerics id, and may answer otherwise; that is how differences look.
    sampling = SamplingParameters(temperature=0.0, max_tokens=64, ignore_eos=True)
    asked = [Asked(prompt, replace(sampling, temperature=heat)) for prompt in prompts for heat in (0.0, 1.0)]
    assert in_float32.info.numerics_id != house.truth.info.numerics_id
    parted = []
    for each in asked:
        left, right = house.truth.answer(each).ids, in_float32.answer(each).ids
        found = house.truth.divergence(left, right, each)
        if found is None:
            assert left == right
            continue
        assert left[: found.position] == right[: found.position]
        assert found.ids == (left[found.position], right[found.position])
        assert 0 <= found.margin < 1.0
        assert f"index {found.position}: {found.ids[0]} and {found.ids[1]}, margin" in str(found)
        parted.append(found)
    assert parted, "no pair parts, so nothing is shown"


async def test_c31_only_a_margin_under_the_bound_is_a_tie(house, prompts):
    asked = Asked(prompts[0], SamplingParameters(temperature=0.0, max_tokens=8, ignore_eos=True))
    right = house.truth.answer(asked).ids
    row = house.truth.logits(asked.prompt)
    second = int((-row).argsort()[1])
    found = house.truth.divergence(right, [second, *right[1:]], asked)
    margin = float(row[right[0]] - row[second])
    assert (found.position, found.ids) == (0, (right[0], second))
    assert found.margin == pytest.approx(margin, abs=1e-6)
    assert found.is_tie(margin + 1e-3)
    assert not found.is_tie(margin - 1e-3)
    # Within one numerics id the bound is 0: even an equal score is a difference.
    assert not replace(found, margin=0.0).is_tie(0.0)
    assert house.truth.divergence(right, right, asked) is None
    # An answer that ends early is never a tie, nor is an id that could not be chosen.
    assert math.isinf(house.truth.divergence(right, right[:3], asked).margin)
    barred = replace(asked, sampling=replace(asked.sampling, logit_bias=((second, -100.0),)))
    parted = divergence(right, [second], barred, house.truth.logits, vocab_size=house.truth.info.vocab_size)
    assert math.isinf(parted.margin)
