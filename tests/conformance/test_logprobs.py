"""Log-probabilities are the target's own, for accepted, correction and bonus tokens alike."""

from dataclasses import replace

import pytest
import torch

from outrider.client import Delta, PromptIds, Speculation
from outrider.v1 import generation_pb2, inference_pb2
from tests.support.divergence import Asked
from tests.support.known_drafts import known_draft

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOLERANCE = 1e-5
"""Of log-probabilities against another library's float32 softmax; against plain decoding there is none."""


@pytest.mark.parametrize("kind", ["oracle", "wrong at 1", "random"])
async def test_c23_a_logprob_is_the_log_softmax_at_its_own_position(house, prompts, ways, kind):
    # Processing must not show in it.
    sampling = replace(ways["sampled"], temperature=1.4, repetition_penalty=1.5, logit_bias=((9, 3.0),))
    asked = Asked(prompts[0], sampling)
    house.propose(known_draft(kind, house.truth))
    answer = await house.ask(asked, 4, 2)
    for index, (token, entry) in enumerate(zip(answer.token_ids, answer.logprobs, strict=True)):
        row = torch.tensor(house.truth.logits([*asked.prompt, *answer.token_ids[:index]]))
        wanted = torch.log_softmax(row, dim=0)
        assert entry.logprob == pytest.approx(float(wanted[token]), abs=TOLERANCE)
        best = torch.topk(wanted, 2)
        assert entry.top_ids == tuple(best.indices.tolist())
        assert entry.top_logprobs == pytest.approx(best.values.tolist(), abs=TOLERANCE)
    assert len({entry.logprob for entry in answer.logprobs}) > 20


@pytest.mark.parametrize("way", ["greedy", "sampled"])
async def test_c24_logprobs_are_those_of_plain_decoding_and_none_is_missing(house, prompts, ways, way):
    plain = await house.check_all(Asked(prompts[1], ways[way]))
    assert len(plain.logprobs) == len(plain.token_ids)


async def test_c24_each_delta_brings_the_logprobs_of_its_own_tokens(house, prompts, ways):
    asked = Asked(prompts[1], ways["greedy"])
    right = house.truth.answer(asked)
    house.propose(known_draft("wrong at 2", house.truth))
    events = house.scripted.generate(
        PromptIds(asked.prompt), sampling=asked.sampling, seed=asked.seed, speculation=Speculation(k=4)
    )
    deltas = [event async for event in events if isinstance(event, Delta) and event.token_ids]
    assert {len(delta.token_ids) for delta in deltas} >= {1, 3}
    done = 0
    for delta in deltas:
        assert len(delta.logprobs) == len(delta.token_ids)
        for entry, wanted in zip(delta.logprobs, right.logprobs[done:], strict=False):
            assert entry.top_ids == wanted.top_ids
        done += len(delta.token_ids)


@pytest.mark.parametrize("num_top", [0, 1, 20])
async def test_c25_lists_of_the_best_ids_are_those_of_plain_decoding(house, prompts, ways, num_top):
    asked = Asked(prompts[2], replace(ways["sampled"], logprobs=num_top, presence_penalty=0.5))
    answer = await house.check_all(asked)
    for token, entry in zip(answer.token_ids, answer.logprobs, strict=True):
        assert len(entry.top_ids) == len(entry.top_logprobs) == num_top
        assert list(entry.top_logprobs) == sorted(entry.top_logprobs, reverse=True)
        if token in entry.top_ids:
            assert entry.top_logprobs[entry.top_ids.index(token)] == entry.logprob


async def test_c25_one_mode_is_offered_and_it_is_raw_logprobs(house, prompts, ways):
    # Values differ from those of the processed distribution, which is another mode.
    cold = Asked(prompts[0], replace(ways["greedy"], logprobs=1))
    hot = replace(cold, sampling=replace(cold.sampling, temperature=5.0, top_k=1))
    answers = [await house.ask(asked) for asked in (cold, hot)]
    assert answers[0].token_ids == answers[1].token_ids
    assert answers[0].logprobs == answers[1].logprobs
    assert all(entry.logprob < 0 for entry in answers[1].logprobs)


async def test_c26_prompt_logprobs_can_not_be_asked_for_and_do_not_come(house, prompts, ways):
    # Whoever offers them finds this test, and writes the one that compares them.
    requests = (inference_pb2.GenerateRequest, generation_pb2.Sampling)
    names = {field.name for request in requests for field in request.DESCRIPTOR.fields}
    assert not [name for name in names if "echo" in name or ("prompt" in name and "logprob" in name)]
    answer = await house.ask(Asked(prompts[0], ways["greedy"]))
    assert len(answer.logprobs) == len(answer.token_ids) == answer.final.completion_tokens
