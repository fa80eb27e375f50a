"""A selection on a model that says something, through four processes: speculation against plain decoding."""

import asyncio
from dataclasses import replace

import pytest

from outrider.client import Delta, DraftSource, OutriderClient, SamplingParameters, Speculation
from outrider.runtime.checkpoints import checkpoint_folder
from tests.support.calls import until_drafts_ready
from tests.support.cluster import Cluster, start_all
from tests.support.models import with_noise

NUM_TOKENS = 20
GREEDY = SamplingParameters(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True, logprobs=2)
SAMPLING = {"greedy": GREEDY, "sampled": replace(GREEDY, temperature=0.8, top_p=0.95)}
# What it says behind these goes round in circles.
LOOPING = "1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2,"
STORY = "Once upon a time, in a village by the sea,"
HOW = (
    Speculation(k=4, source=DraftSource.MODEL),
    Speculation(k=3, w=3, source=DraftSource.MODEL),
    Speculation(k=8, source=DraftSource.NGRAM),
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, smollm2_path):
    folder = tmp_path_factory.mktemp("smollm2")
    weights = checkpoint_folder(str(smollm2_path), "bfloat16", print)
    noisy = with_noise(weights, folder / "noisy", scale=0.12)
    with Cluster(folder) as cluster:
        validator, draft = cluster.validator("smollm2"), cluster.draft(noisy)
        start_all(validator, draft)
        scheduler = cluster.scheduler([validator], [draft.address]).start()
        gateway = cluster.gateway(scheduler).start()
        asyncio.run(until_drafts_ready(scheduler.address))
        yield gateway.address


@pytest.fixture
async def client(gateway):
    async with OutriderClient(gateway) as client:
        yield client


async def answers_of(client, prompt, sampling, *, seed=5, how=HOW[:2]):
    """Plain decoding first, then each way to speculate; ids, logprobs and text are equal."""
    plain, *others = [
        await client.complete(prompt, sampling=sampling, seed=seed, speculation=each)
        for each in (Speculation(k=0), *how)
    ]
    for answer in others:
        assert answer.token_ids == plain.token_ids
        assert answer.logprobs == plain.logprobs
        assert answer.text == plain.text
        assert answer.final.finish_reason is plain.final.finish_reason
    assert len(plain.logprobs) == len(plain.token_ids) == plain.final.completion_tokens
    return plain, others


@pytest.mark.parametrize("way", SAMPLING)
async def test_c15_penalties_are_those_of_plain_decoding(client, way):
    sampling = replace(SAMPLING[way], presence_penalty=2.0, frequency_penalty=2.0)
    plain, _ = await answers_of(client, LOOPING, sampling)
    free = await client.complete(LOOPING, sampling=SAMPLING[way], seed=5, speculation=Speculation(k=0))
    assert plain.token_ids != free.token_ids


async def test_c17_a_loop_that_the_penalty_breaks_stays_broken_where_lookup_proposes_it(client):
    loop, lookups = await answers_of(client, LOOPING, SAMPLING["greedy"], how=HOW[2:])
    assert lookups[0].final.counters.accepted > NUM_TOKENS // 2, "the text does not loop"
    broken = replace(SAMPLING["greedy"], repetition_penalty=1.5)
    plain, _ = await answers_of(client, LOOPING, broken, how=HOW[2:])
    assert len(set(plain.token_ids)) > len(set(loop.token_ids))


async def test_c19_a_banned_id_never_appears(client):
    free = await client.complete(STORY, sampling=SAMPLING["greedy"], speculation=Speculation(k=0))
    banned = tuple((token, -100.0) for token in sorted(set(free.token_ids[:4])))
    sampling = replace(SAMPLING["greedy"], logit_bias=banned, min_p=0.02)
    plain, _ = await answers_of(client, STORY, sampling)
    assert not {token for token, _ in banned} & set(plain.token_ids)


async def test_c22_a_narrow_kept_set_is_the_targets(client):
    for filters in ({"top_k": 2}, {"top_p": 0.3}):
        sampling = replace(SAMPLING["sampled"], **{"temperature": 1.5, **filters})
        plain, _ = await answers_of(client, STORY, sampling, how=HOW[:2])
        for token, entry in zip(plain.token_ids, plain.logprobs, strict=True):
            assert token in entry.top_ids or "top_p" in filters


@pytest.mark.parametrize("num_top", [0, 5])
async def test_c25_lists_of_the_best_ids_are_those_of_plain_decoding(client, num_top):
    plain, _ = await answers_of(client, STORY, replace(SAMPLING["sampled"], logprobs=num_top), how=HOW[:1])
    assert {len(entry.top_ids) for entry in plain.logprobs} == {num_top}
    assert all(entry.logprob < 0 for entry in plain.logprobs)


async def test_c27_equal_seeds_give_equal_answers_and_others_do_not(client):
    texts = {}
    for seed in (1, 2**64 - 1):
        plain, _ = await answers_of(client, STORY, SAMPLING["sampled"], seed=seed, how=HOW[:1])
        texts[seed] = plain.text
    assert len(set(texts.values())) == len(texts)


async def _sizes(client, **options):
    events = client.generate(STORY, sampling=SAMPLING["greedy"], seed=5, speculation=HOW[0], **options)
    return [len(event.token_ids) async for event in events if isinstance(event, Delta) and event.token_ids]


async def test_c30_the_acceptance_trace_of_greedy_decoding_repeats(client):
    first = await _sizes(client)
    assert len(set(first)) > 1, "acceptance does not vary, so nothing is shown"
    assert await _sizes(client) == first


async def test_c47_speculation_is_switched_off_per_request(client):
    _, (answer,) = await answers_of(
        client, STORY, SAMPLING["greedy"], how=(Speculation(k=8, source=DraftSource.NONE),)
    )
    assert (answer.final.counters.drafted, answer.final.counters.tau) == (0, 1.0)


async def test_c63_eight_streams_at_once_with_speculation(client):
    prompts = [f"{number}. {STORY}" for number in range(8)]
    ways = [SAMPLING["greedy"], SAMPLING["sampled"]] * 4
    plain = [
        await client.complete(prompt, sampling=way, seed=5, speculation=Speculation(k=0))
        for prompt, way in zip(prompts, ways, strict=True)
    ]
    together = await asyncio.gather(
        *(
            client.complete(prompt, sampling=way, seed=5, speculation=HOW[number % 3])
            for number, (prompt, way) in enumerate(zip(prompts, ways, strict=True))
        )
    )
    for answer, right in zip(together, plain, strict=True):
        assert (answer.token_ids, answer.logprobs, answer.text) == (
            right.token_ids,
            right.logprobs,
            right.text,
        )


async def test_c76_c77_token_by_token_and_in_rounds_usage_and_text_are_the_same(client):
    assert set(await _sizes(client, token_by_token=True)) == {1}
    whole, single = [
        await client.complete(
            STORY, sampling=SAMPLING["greedy"], seed=5, speculation=HOW[0], token_by_token=each
        )
        for each in (False, True)
    ]
    assert (whole.token_ids, whole.text, whole.logprobs) == (single.token_ids, single.text, single.logprobs)
    assert whole.final.completion_tokens == single.final.completion_tokens == len(single.token_ids)
