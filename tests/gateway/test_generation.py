"""Over the wire: client, gateway, scripted scheduler."""

import asyncio
from contextlib import aclosing

import pytest

from gateway import conversation
from outrider.client import Chat, ChatMessage, Delta, DraftSource, Final, FinishReason, PromptIds, Speculation
from outrider.rpc import errors
from outrider.sampling.acceptance import TokenLogprobs
from outrider.sampling.parameters import SamplingParameters
from outrider.wire.generation import Failure
from tests.support.scripted import Script


def split(ids, *sizes):
    """The ids in rounds of these sizes, the rest in a last one."""
    rounds = []
    for size in sizes:
        rounds.append(ids[:size])
        ids = ids[size:]
    return [tokens for tokens in (*rounds, ids) if tokens]


async def texts_until_error(client, kind, on_delta=None, **options):
    """The texts of an answer that fails, and its error."""
    texts = []
    try:
        async for event in client.generate("one", **options):
            texts.append(event.text)
            if on_delta:
                await on_delta()
    except kind as error:
        return texts, error
    pytest.fail("the answer did not fail")


async def test_c63_a_streamed_answer_joins_to_the_text_of_its_ids(backend, client, ids):
    tokens = ids("one two, 小さな three")
    script = backend.play(Script(split(tokens, 1, 5, 3), draft_status="slow"))
    events = [event async for event in client.generate("one", seed=7)]
    *deltas, final = events
    assert all(isinstance(event, Delta) for event in deltas)
    assert "".join(delta.text for delta in deltas) == "one two, 小さな three"
    assert tuple(token for delta in deltas for token in delta.token_ids) == tokens
    assert (final.finish_reason, final.prompt_tokens, final.completion_tokens) == (
        FinishReason.LENGTH,
        2,
        len(tokens),
    )
    assert (final.seed, final.numerics_id, final.draft_status, final.trace_id) == (7, "numerics", "slow", "")
    assert final.counters == script.counters()


async def test_c63_answers_side_by_side_do_not_mix(backend, client, ids):
    backend.play(Script(split(ids("one two three four five"), 2, 1, 1)))
    answers = await asyncio.gather(*(client.complete("one", seed=seed) for seed in range(8)))
    assert {answer.text for answer in answers} == {"one two three four five"}
    assert [answer.final.seed for answer in answers] == list(range(8))


async def test_a_prompt_gets_its_special_tokens_and_a_chat_those_of_its_template(
    backend, client, tokenizer, ids
):
    script = backend.play(Script([ids("one")]))
    await client.complete("one two")
    assert script.request.prompt == (0, *ids("one two"))
    await client.complete(Chat((ChatMessage("system", "one"), ChatMessage("user", "two"))))
    assert script.request.prompt == (0, *ids("<|system|>one\n<|user|>two\n<|assistant|>"))
    await client.complete(PromptIds((5, 6, 0)))
    assert script.request.prompt == (5, 6, 0)


async def test_c27_the_seed_and_all_parameters_reach_the_scheduler_unchanged(backend, client, ids):
    script = backend.play(Script([ids("one")]))
    sampling = SamplingParameters(
        temperature=0.5,
        top_k=9,
        top_p=0.25,
        min_p=0.125,
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias=((3, -100.0), (9, 2.5)),
        min_tokens=1,
        max_tokens=17,
        stop_ids=(8, 9),
        ignore_eos=True,
        logprobs=3,
    )
    speculation = Speculation(k=0, w=2, source=DraftSource.NGRAM)
    seed = 2**64 - 1
    completion = await client.complete("one", sampling=sampling, speculation=speculation, seed=seed, choice=3)
    request = script.request
    assert (request.sampling, request.speculation, request.seed, request.choice) == (
        sampling,
        speculation,
        seed,
        3,
    )
    assert completion.final.seed == seed


async def test_c27_a_drawn_seed_has_53_bits_and_is_told(backend, client, ids):
    script = backend.play(Script([ids("one")]))
    seeds = set()
    for _ in range(8):
        completion = await client.complete("one")
        assert completion.final.seed == script.request.seed < 2**53
        seeds.add(completion.final.seed)
    assert len(seeds) == 8
    assert max(seeds) > 2**44


async def test_unset_parameters_are_the_defaults_of_openai(backend, client, ids):
    script = backend.play(Script([ids("one")]))
    await client.complete("one")
    assert script.request.sampling == SamplingParameters()
    assert script.request.speculation == Speculation()


async def test_c08_the_end_id_is_committed_and_counted_but_has_no_text(backend, client, ids, end_id):
    tokens = (*ids("one two"), end_id)
    backend.play(Script(split(tokens, 1), end=FinishReason.STOP))
    completion = await client.complete("one")
    assert (completion.text, completion.token_ids) == ("one two", tokens)
    assert (completion.final.finish_reason, completion.final.completion_tokens) == (
        FinishReason.STOP,
        len(tokens),
    )


async def test_c08_an_id_of_the_request_that_ends_the_answer_has_no_text_either(backend, client, ids):
    *before, last = ids("one two")
    backend.play(Script([(*before, last)], end=FinishReason.STOP))
    completion = await client.complete("one", sampling=SamplingParameters(stop_ids=(last,)))
    assert completion.text == "one"


async def test_c08_with_ignore_eos_the_end_id_is_an_ordinary_id(backend, client, ids, end_id):
    backend.play(Script([(*ids("one"), end_id, *ids(" two"))]))
    completion = await client.complete("one", sampling=SamplingParameters(ignore_eos=True))
    assert completion.text == "one<end> two"


# Sizes of rounds: all at once, one by one, and a match over rounds.
@pytest.mark.parametrize("sizes", [(), (1,) * 20, (1, 3), (2, 2)])
@pytest.mark.parametrize(
    ("text", "stop", "shown"),
    [
        ("one two three four", (" three",), "one two"),
        ("one two three four", ("o th", "x"), "one tw"),
        ("one 小さな two", ("さな",), "one 小"),
        ("one 😀 two", ("😀",), "one "),
        ("one, two", ("one",), ""),
    ],
)
async def test_c10_c11_the_answer_ends_with_the_token_that_completes_a_stop_string(
    backend, client, tokenizer, ids, text, stop, shown, sizes
):
    tokens = ids(text)
    kept = next(n for n in range(len(tokens)) if any(each in tokenizer.decode(tokens[:n]) for each in stop))
    script = backend.play(Script(split(tokens, *sizes), end=None))
    completion = await client.complete("one", stop=stop)
    final = completion.final
    assert (completion.text, completion.token_ids) == (shown, tokens[:kept])
    assert (final.finish_reason, final.stop, final.completion_tokens) == (
        FinishReason.STOP_STRING,
        stop[0],
        kept,
    )
    assert [(each.kept_length, each.reason) for each in script.finishes] == [(kept, FinishReason.STOP_STRING)]
    assert final.counters == script.counters(kept)
    assert final.counters.committed == kept


async def test_c11_after_a_match_no_further_round_is_asked_for(backend, client, ids):
    gate = asyncio.Semaphore(2)
    script = backend.play(Script([ids("one"), ids(" two"), ids(" three"), ids(" four")], gate=gate, end=None))
    async with aclosing(client.generate("one", stop=[" two"])) as events:
        texts = [(await anext(events)).text]
        await asyncio.wait_for(script.finished.wait(), 10)
        gate.release()
        gate.release()
        texts += [event.text async for event in events if isinstance(event, Delta)]
    assert texts == ["one", ""]
    assert script.num_sent == 2


async def test_c11_a_session_that_ended_by_itself_in_that_round_is_counted_at_the_kept_length(
    backend, client, ids
):
    script = backend.play(Script([ids("one two three")], end=FinishReason.LENGTH))
    final = (await client.complete("one", stop=[" two"])).final
    assert (final.finish_reason, final.counters) == (FinishReason.STOP_STRING, script.counters(2))


async def test_c10_text_that_could_begin_a_stop_string_comes_when_it_does_not(backend, client, ids):
    backend.play(Script([ids("one"), ids(" two"), ids(" t")]))
    events = [event async for event in client.generate("one", stop=[" two five", " tx"])]
    assert [event.text for event in events if isinstance(event, Delta)] == ["one", "", " two", " t"]
    assert events[-1].finish_reason is FinishReason.LENGTH


async def test_c13_a_stop_string_within_the_first_min_tokens_does_not_end_the_answer(backend, client, ids):
    backend.play(Script([ids("one two one two")], end=None))
    completion = await client.complete("one", stop=["two"], sampling=SamplingParameters(min_tokens=2))
    assert completion.text == "one two one "
    assert completion.final.completion_tokens == 4


async def test_c77_rounds_of_several_tokens_are_right_in_usage_ids_and_logprobs(backend, client, ids):
    tokens = ids("one two three four")
    logprobs = [TokenLogprobs(-float(index), (index,), (-0.5,)) for index in range(len(tokens))]
    rounds = split(tokens, 1, 2)
    backend.play(Script(rounds, logprobs=split(tuple(logprobs), 1, 2)))
    events = [event async for event in client.generate("one", sampling=SamplingParameters(logprobs=1))]
    deltas = [event for event in events if isinstance(event, Delta)]
    assert [len(delta.token_ids) for delta in deltas] == [len(tokens) for tokens in rounds]
    assert [len(delta.logprobs) for delta in deltas] == [len(tokens) for tokens in rounds]
    assert [entry for delta in deltas for entry in delta.logprobs] == logprobs
    assert events[-1].completion_tokens == len(tokens)


async def test_c76_token_by_token_a_character_of_several_tokens_comes_whole(backend, client, ids):
    tokens = ids("one 小さな two 🙂")
    assert len(tokens) > len("one 小さな two 🙂")
    backend.play(Script(split(tokens, 1, 7)))
    events = [event async for event in client.generate("one", token_by_token=True)]
    deltas = [event for event in events if isinstance(event, Delta)]
    assert [delta.token_ids for delta in deltas] == [(token,) for token in tokens]
    assert "".join(delta.text for delta in deltas) == "one 小さな two 🙂"
    assert not any("\N{REPLACEMENT CHARACTER}" in delta.text for delta in deltas)
    assert {"小", "さ", "な", "🙂"} <= {delta.text.strip() for delta in deltas}
    assert events[-1].completion_tokens == len(tokens)


async def test_c76_token_by_token_a_stop_string_ends_the_answer_within_a_round(backend, client, ids):
    script = backend.play(Script([ids("one two three four")], end=None))
    events = [event async for event in client.generate("one", stop=["two"], token_by_token=True)]
    *deltas, final = events
    kept = ids("one two")
    assert [token for delta in deltas for token in delta.token_ids] == list(kept)
    assert "".join(delta.text for delta in deltas) == "one "
    assert (final.finish_reason, final.completion_tokens) == (FinishReason.STOP_STRING, len(kept))
    assert [finish.kept_length for finish in script.finishes] == [len(kept)]


async def test_a_character_cut_by_the_end_shows_as_replaced(backend, client, ids, tokenizer):
    tokens = ids("one 小")[:-1]
    backend.play(Script(split(tokens, 1)))
    assert (await client.complete("one")).text == tokenizer.decode(tokens) == "one \N{REPLACEMENT CHARACTER}"


async def test_a_client_that_leaves_ends_the_session(backend, client, ids):
    script = backend.play(Script([ids("one")], end=None))
    async with aclosing(client.generate("one")) as events:
        await anext(events)
    await asyncio.wait_for(script.cancelled.wait(), 10)


async def test_a_client_task_that_is_cancelled_ends_the_session(backend, client, ids):
    script = backend.play(Script([ids("one")], end=None))
    task = asyncio.create_task(client.complete("one"))
    await script.sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(script.cancelled.wait(), 10)


async def test_a_time_limit_ends_the_session(backend, client, ids):
    script = backend.play(Script([ids("one")], end=None))
    with pytest.raises(errors.DeadlineExceeded):
        await client.complete("one", timeout_s=0.5)
    await asyncio.wait_for(script.cancelled.wait(), 10)


@pytest.mark.parametrize(
    "failure",
    [
        Failure("NO_EQUAL_REPLICA", "the validator is lost", retryable=True, retry_after_ms=1500),
        Failure("NON_FINITE_LOGITS", "the model gave a NaN"),
    ],
)
async def test_a_failure_behind_the_first_delta_is_its_last_event(backend, client, ids, failure):
    backend.play(Script([ids("one")], end=failure))
    texts, error = await texts_until_error(client, errors.OutriderError)
    assert texts == ["one"]
    assert errors.to_failure(error) == failure


async def test_a_failure_before_the_first_delta_ends_the_call_with_a_status(backend, client):
    backend.play(Script(end=Failure("RESOURCE_EXHAUSTED", "full", retryable=True, retry_after_ms=250)))
    with pytest.raises(errors.ResourceExhausted, match="full") as caught:
        await client.complete("one")
    assert caught.value.retry_after_s == 0.25


@pytest.mark.parametrize(
    "refusal",
    [
        errors.InvalidArgument("k is 65; give at most 64", field="speculation.k"),
        errors.ResourceExhausted("too many sessions", retry_after_s=2.0),
        errors.Unavailable("draining", retry_after_s=5.0),
    ],
)
async def test_what_the_scheduler_refuses_reaches_the_client_as_it_was_said(backend, client, refusal):
    backend.play(Script(refusal=refusal))
    with pytest.raises(type(refusal)) as caught:
        await client.complete("one")
    assert (caught.value.message, caught.value.field, caught.value.retry_after_s) == (
        refusal.message,
        refusal.field,
        refusal.retry_after_s,
    )


async def test_a_scheduler_that_is_lost_in_the_middle_is_a_retryable_failure(
    backend, client, ids, monkeypatch
):
    monkeypatch.setattr(conversation, "REOPEN_S", 0.5)
    backend.play(Script([ids("one")], end=None))
    texts, error = await texts_until_error(client, errors.Unavailable, lambda: backend.server.stop(0))
    assert texts == ["one"]
    assert f"scheduler at {backend.address}" in error.message
    assert error.retry_after_s is not None


async def test_a_scheduler_that_is_not_there_is_a_retryable_status(backend, client):
    await backend.server.stop(0)
    with pytest.raises(errors.Unavailable, match=f"scheduler at {backend.address}") as caught:
        await client.complete("one")
    assert caught.value.retry_after_s is not None


async def test_list_models_tells_of_the_served_one(client, info):
    assert await client.list_models() == (info,)


async def test_the_final_event_is_last(backend, client, ids):
    backend.play(Script([ids("one")]))
    events = [event async for event in client.generate("one")]
    assert [type(event) for event in events] == [Delta, Final]
