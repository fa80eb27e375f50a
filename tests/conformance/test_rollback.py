"""After a rejection both sides stand at the committed length, with exact counts."""

from dataclasses import replace

import pytest

from outrider.client import Delta, DraftSource, PromptIds, Speculation
from outrider.sampling.sampler import TokenSampler
from tests.support.calls import load_of
from tests.support.deployment import until
from tests.support.divergence import Asked, first_difference
from tests.support.known_drafts import known_draft
from tests.support.truth import Truth

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUM_TOKENS = 41


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("way", ["greedy", "sampled"])
async def test_c50_rejection_at_each_index_has_exact_counts_and_lengths(house, prompts, ways, way, k):
    asked = Asked(prompts[0], replace(ways[way], max_tokens=NUM_TOKENS))
    behind_prefill = NUM_TOKENS - 1
    for index in range(k + 1):
        kind = "oracle" if index == k else f"wrong at {index}"
        house.propose(known_draft(kind, house.truth))
        for w in (1, 3):
            answer = await house.ask(asked, k, w)
            house.check(answer, asked)
            counters = answer.final.counters
            # The last round has room for `rest` tokens, of which one is the target's own.
            full, rest = divmod(behind_prefill, index + 1)
            if w == 1:
                assert counters.rounds == full + (rest > 0)
                assert counters.accepted == full * index + max(0, rest - 1)
            assert counters.committed == behind_prefill
            assert counters.accepted + counters.rounds == behind_prefill
            assert counters.raw_accepted == counters.accepted

    async def is_idle() -> bool:
        load = await load_of(house.validator)
        return load.num_sessions == 0 and load.num_free_pages == load.num_pages

    await until(is_idle)


@pytest.mark.parametrize("way", ["greedy", "sampled"])
@pytest.mark.parametrize(("k", "w"), [(1, 1), (5, 1), (3, 2)])
async def test_c52_a_draft_of_the_targets_weights_is_always_right(twins, prompts, ways, way, k, w):
    """It is only while its KV holds the whole committed prefix, the target's own tokens included."""
    for prompt in prompts:
        asked = Asked(prompt, ways[way])
        answer = await twins.ask_real(asked, k, w)
        twins.check(answer, asked)
        counters = answer.final.counters
        # The first token comes with the prompt, then each round has k and one more.
        assert counters.rounds == -(-(len(answer.token_ids) - 1) // (k + 1))
        if w == 1:
            assert counters.accepted == counters.drafted


@pytest.fixture(scope="module")
def draft(noisy):
    """What the draft model says by definition."""
    return Truth.load(noisy)


@pytest.mark.parametrize("way", ["greedy", "sampled"])
@pytest.mark.parametrize("k", [1, 4])
async def test_c49_c52_behind_rejections_the_draft_proposes_what_it_would_afresh(
    house, draft, prompts, ways, way, k
):
    """A KV that was reset, or still holds what was rejected, or lacks a token, shows in the rounds."""
    asked = Asked(prompts[0], ways[way])
    right = house.truth.answer(asked).ids
    wanted, done = [1], 1
    while done < len(right):
        depth = min(k, len(right) - done - 1)
        tokens = [*asked.prompt, *right[:done]]
        for _ in range(depth):
            sampler = TokenSampler(
                asked.sampling,
                seed=asked.seed,
                tokens=tokens,
                prompt_length=len(asked.prompt),
                end_ids=frozenset(),
                vocab_size=draft.info.vocab_size,
            )
            tokens.append(sampler.choose(draft.logits(tokens)))
        drafted = tokens[len(asked.prompt) + done :]
        matching = first_difference(drafted, right[done : done + depth])
        wanted.append(1 + (depth if matching is None else matching))
        done += wanted[-1]
    assert 1 == min(wanted[1:]) < max(wanted), "nothing is rejected, or nothing accepted"
    events = house.real.generate(
        PromptIds(asked.prompt),
        sampling=asked.sampling,
        seed=asked.seed,
        speculation=Speculation(k=k, source=DraftSource.MODEL),
        store=False,
    )
    deltas = [event async for event in events if isinstance(event, Delta)]
    assert [len(delta.token_ids) for delta in deltas if delta.token_ids] == wanted


async def test_c49_acceptance_does_not_fall_after_rejections(twins, prompts, ways):
    """A side that resets in place of truncating is right at most once in k behind its first rejection."""
    asked = Asked(prompts[0], replace(ways["greedy"], max_tokens=64))
    twins.propose(known_draft("wrong at 3", twins.truth))
    answer = await twins.ask(asked, 4)
    twins.check(answer, asked)
    counters = answer.final.counters
    assert counters.accepted / counters.drafted >= 0.7
