"""Streaming over gRPC with speculation on: many at once, whole rounds or token by token."""

import asyncio
from contextlib import aclosing

import pytest

from outrider.client import Delta, Final, PromptIds, Speculation
from tests.support.divergence import Asked
from tests.support.known_drafts import known_draft

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def deltas_of(client, asked, *, k=4, w=1, **options):
    """The deltas that bring tokens, all text, and the final event."""
    events = client.generate(
        PromptIds(asked.prompt),
        sampling=asked.sampling,
        seed=asked.seed,
        speculation=Speculation(k=k, w=w),
        **options,
    )
    deltas, final = [], None
    async with aclosing(events):
        async for event in events:
            match event:
                case Delta():
                    deltas.append(event)
                case Final():
                    final = event
    assert final is not None
    return [delta for delta in deltas if delta.token_ids], "".join(delta.text for delta in deltas), final


async def test_c63_streams_side_by_side_with_speculation(house, prompts, ways):
    asked = [Asked(prompt, way, seed) for prompt in prompts for way in ways.values() for seed in (1, 2)]
    for each in asked:
        house.truth.answer(each)
    answers = await asyncio.gather(
        *(deltas_of(house.real, each, k=4, w=1 + index % 2) for index, each in enumerate(asked))
    )
    sizes = set()
    for each, (deltas, _, final) in zip(asked, answers, strict=True):
        ids = [token for delta in deltas for token in delta.token_ids]
        assert ids == house.truth.answer(each).ids
        assert final.completion_tokens == len(ids)
        sizes |= {len(delta.token_ids) for delta in deltas}
    assert max(sizes) > 2, "no round committed several tokens, so nothing is shown"


@pytest.mark.parametrize("way", ["greedy", "sampled"])
async def test_c76_token_by_token_each_delta_has_one_token(house, prompts, ways, way):
    asked = Asked(prompts[0], ways[way])
    house.propose(known_draft("oracle", house.truth))
    rounds, text, final = await deltas_of(house.scripted, asked)
    single, same_text, same_final = await deltas_of(house.scripted, asked, token_by_token=True)
    assert max(len(delta.token_ids) for delta in rounds) == 5
    assert {len(delta.token_ids) for delta in single} == {1}
    assert {len(delta.logprobs) for delta in single} == {1}
    assert [delta.token_ids[0] for delta in single] == house.truth.answer(asked).ids
    assert [delta.logprobs[0] for delta in single] == [each for delta in rounds for each in delta.logprobs]
    assert same_text == text
    assert (same_final.completion_tokens, same_final.counters.rounds) == (
        final.completion_tokens,
        final.counters.rounds,
    )


async def test_c77_chunks_of_several_tokens_are_right_in_usage_and_index(house, prompts, ways):
    asked = Asked(prompts[0], ways["sampled"])
    right = house.truth.answer(asked)
    house.propose(known_draft("wrong at 2", house.truth))
    for options in ({}, {"token_by_token": True}):
        deltas, _, final = await deltas_of(house.scripted, asked, **options)
        index = 0
        for delta in deltas:
            end = index + len(delta.token_ids)
            assert list(delta.token_ids) == right.ids[index:end]
            assert [entry.top_ids for entry in delta.logprobs] == [
                entry.top_ids for entry in right.logprobs[index:end]
            ]
            index = end
        assert index == final.completion_tokens == len(right.ids)
        assert final.prompt_tokens == len(asked.prompt)


async def test_c77_a_stop_string_in_the_middle_of_a_chunk_counts_up_to_its_token(house, prompts, ways):
    asked = Asked(prompts[0], ways["greedy"])
    house.propose(known_draft("oracle", house.truth))
    _, text, _ = await deltas_of(house.scripted, asked)
    stop = text[9:12]
    shown = {}
    for name, options in (("rounds", {}), ("tokens", {"token_by_token": True})):
        deltas, cut, final = await deltas_of(house.scripted, asked, stop=[stop], **options)
        assert final.stop == stop
        assert cut == text[: text.index(stop)]
        assert sum(len(delta.token_ids) for delta in deltas) == final.completion_tokens
        assert final.counters.committed + 1 == final.completion_tokens
        shown[name] = [token for delta in deltas for token in delta.token_ids]
    assert shown["rounds"] == shown["tokens"] == house.truth.answer(asked).ids[: len(shown["rounds"])]
