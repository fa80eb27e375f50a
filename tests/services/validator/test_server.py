"""The validator as a process would serve it: real server, real stream, real (tiny) model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from outrider.rpc.errors import error_from_rpc
from outrider.runtime.errors import ModelError
from outrider.runtime.loading import load_runtime
from outrider.runtime.sequence import Segment
from outrider.sampling import DraftTree, SamplingParameters
from outrider.v1 import validator_pb2_grpc, worker_pb2_grpc
from outrider.wire import validator
from outrider.wire.worker import Addressed, Header, Hello, ToWorker, tokenizer_from_pb
from outrider.wire.worker_calls import (
    decode_model_info,
    load_request,
    model_info_request,
    reload_request,
    tokenizer_request,
)
from services.validator.server import serve
from services.validator.settings import ValidatorSettings
from tests.support.models import tiny_model
from tests.support.worker_streams import Answer, Drafter, Stream, TargetSession, expected, target_session
from tests.support.worker_wire import channel_to, serving, target_stream

# Seeds of prompts whose greedy output does not loop.
PROMPTS = [
    tuple(random.Random(seed).randrange(3, 400) for _ in range(20 + 12 * seed))
    for seed in (0, 1, 3, 5, 10, 13)
]
GREEDY = SamplingParameters(temperature=0.0, max_tokens=64, logprobs=3, ignore_eos=True)
SAMPLED = SamplingParameters(
    temperature=0.8, top_p=0.95, presence_penalty=0.5, max_tokens=64, logprobs=0, ignore_eos=True
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("target"), seed=2)


def settings_for(folder: Path, dtype: str = "bfloat16", **changes: object) -> ValidatorSettings:
    values = {"port": 0, "num_threads": 1, "kv_budget_mib": 4, "prefill_chunk": 64, "grace_s": 0.2, **changes}
    return ValidatorSettings.model_validate({"model": str(folder), "dtype": dtype, **values})


@asynccontextmanager
async def served(settings: ValidatorSettings) -> AsyncIterator[grpc.aio.Channel]:
    async with serving(serve, settings) as address, channel_to(address) as channel:
        yield channel


def mixed_draft(answer: Answer, prompt: Sequence[int], k: int, *, tree: bool, seed: int) -> Drafter:
    """Right for a random length, then wrong; as a chain, or among other candidates."""
    rng = random.Random(seed)

    def draft(tokens: Sequence[int]) -> DraftTree:
        done = len(tokens) - len(prompt)
        right = rng.randrange(k + 1)
        path = [*answer.ids[done : done + right], *(rng.randrange(400) for _ in range(k - right))]
        if not tree:
            return DraftTree.chain(path)
        others = [[*path[:1], *(rng.randrange(-5, 420) for _ in range(k - 1))] for _ in range(2)]
        return DraftTree.from_candidates([others[0], path, others[1]])

    return draft


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_c01_c24_c29_ids_and_logprobs_are_equal_for_any_draft_and_neighbours(
    folder: Path, dtype: str, sampling: SamplingParameters
):
    async with served(settings_for(folder, dtype)) as channel, target_stream(channel) as stream:
        alone = [await target_session(stream, prompt, sampling).run() for prompt in PROMPTS]
        assert all(len(set(answer.ids)) >= 40 for answer in alone)

        async def run(index: int, k: int, *, tree: bool) -> None:
            prompt, right = PROMPTS[index], alone[index]
            drafter = mixed_draft(right, prompt, k, tree=tree, seed=k)
            answer = await target_session(stream, prompt, sampling).run(drafter)
            assert answer.ids == right.ids
            assert answer.logprobs == right.logprobs
            if k > 1:
                assert len(answer.verdicts) < len(right.ids)

        async with asyncio.TaskGroup() as tasks:
            for index, k in enumerate((0, 1, 2, 4, 8, 5)):
                tasks.create_task(run(index, k, tree=False))
                if k:
                    tasks.create_task(run(index, k, tree=True))


async def test_c51_each_token_comes_from_the_row_of_its_own_position(folder: Path):
    runtime = load_runtime(str(folder), dtype="bfloat16", num_threads=1)

    def logits(tokens: Sequence[int]) -> np.ndarray:
        sequence = runtime.new_sequence()
        runtime.reserve(sequence, len(tokens))
        row: np.ndarray = runtime.step([Segment(sequence, tuple(tokens), wanted=(len(tokens) - 1,))])[0][0]
        runtime.release(sequence)
        return row

    info = runtime.info
    right = expected(
        logits,
        PROMPTS[1],
        SAMPLED,
        vocab_size=info.vocab_size,
        eos_ids=info.eos_ids,
        context_length=info.context_length,
    )
    async with served(settings_for(folder)) as channel, target_stream(channel) as stream:
        drafter = mixed_draft(right, PROMPTS[1], 4, tree=True, seed=3)
        answer = await target_session(stream, PROMPTS[1], SAMPLED).run(drafter)
    assert answer.ids == right.ids
    # They cross the wire as float32.
    wanted = [np.float32(entry.logprob) for entry in right.logprobs]
    assert [np.float32(entry.logprob) for entry in answer.logprobs] == wanted


async def test_c29_eviction_and_rebuild_change_nothing(folder: Path):
    sampling = SamplingParameters(temperature=0.7, max_tokens=150, logprobs=0, ignore_eos=True)
    prompts = [tuple(random.Random(seed).randrange(3, 400) for _ in range(330)) for seed in range(10)]
    roomy = settings_for(folder, kv_budget_mib=8)
    tight = settings_for(folder, kv_budget_mib=1)
    async with (
        serving(serve, roomy) as address,
        channel_to(address) as channel,
        target_stream(channel) as stream,
    ):
        wanted = [await target_session(stream, prompt, sampling).run() for prompt in prompts]
    async with (
        serving(serve, tight) as address,
        channel_to(address) as channel,
        target_stream(channel) as stream,
    ):
        pages = stream.messages[0].load.num_pages
        assert 0 < pages < 10 * (480 // 64), "the pool must be too small for all"

        async def run(prompt: tuple[int, ...], right: Answer, seed: int) -> None:
            drafter = mixed_draft(right, prompt, 5, tree=seed % 2 == 0, seed=seed)
            answer = await target_session(stream, prompt, sampling).run(drafter)
            assert (answer.ids, answer.logprobs) == (right.ids, right.logprobs)

        async with asyncio.TaskGroup() as tasks:
            for seed, (prompt, right) in enumerate(zip(prompts, wanted, strict=True)):
                tasks.create_task(run(prompt, right, seed))


@pytest.mark.parametrize("how", ["resume", "reopen", "another process"])
async def test_c54_a_session_goes_on_after_its_stream_is_lost(folder: Path, how: str):
    sampling = SamplingParameters(
        temperature=0.8, presence_penalty=0.6, min_tokens=30, max_tokens=64, logprobs=2, stop_ids=(5, 17)
    )
    peer = b"p" * 16
    async with served(settings_for(folder)) as channel:
        async with target_stream(channel) as stream:
            right = await target_session(stream, PROMPTS[2], sampling).run()
        session = target_session(stream, PROMPTS[2], sampling)
        async with target_stream(channel, peer) as stream:
            session.stream = stream
            numerics_id = stream.welcome.info.numerics_id
            await session.run(mixed_draft(right, PROMPTS[2], 3, tree=False, seed=1), max_rounds=6)
        if how == "another process":
            async with served(settings_for(folder)) as other, target_stream(other) as stream:
                assert stream.welcome.info.numerics_id == numerics_id
                await reopen(session, stream)
        else:
            async with target_stream(channel, peer) as stream:
                if how == "resume":
                    session.resume(stream)
                    await session.run()
                else:
                    await reopen(session, stream)
    assert session.answer.ids == right.ids
    assert session.answer.logprobs == right.logprobs


async def reopen(session: TargetSession, stream: Stream) -> None:
    session.stream = stream
    session.epoch += 1
    session.open(DraftTree.empty())
    await session.opened()
    await session.verdict()
    await session.run()


async def test_unary_calls_tell_what_is_loaded_and_done(folder: Path):
    settings = settings_for(folder, served_name="tiny")
    async with served(settings) as channel:
        calls = worker_pb2_grpc.WorkerServiceStub(channel)
        info = decode_model_info(await calls.GetModelInfo(model_info_request()))
        assert (info.model, info.vocab_size, info.context_length) == ("tiny", 400, 512)
        files = tokenizer_from_pb(await calls.GetTokenizer(tokenizer_request()))
        assert files.tokenizer_fingerprint == info.tokenizer_fingerprint
        assert b"<|start|>" in files.tokenizer_json
        async with target_stream(channel) as stream:
            assert stream.welcome.info == info
            await target_session(stream, PROMPTS[0], GREEDY).run(max_rounds=1)
            load = (await calls.GetLoad(load_request())).load
            assert (load.num_sessions, load.num_pages - load.num_free_pages) == (1, 1)


async def test_reload_lets_sessions_end_and_streams_shake_hands_again(folder: Path, tmp_path: Path):
    other = tiny_model(tmp_path / "other", seed=9)
    async with served(settings_for(folder)) as channel:
        calls = worker_pb2_grpc.WorkerServiceStub(channel)
        async with target_stream(channel) as stream:
            session = target_session(stream, PROMPTS[0], GREEDY)
            await session.run(max_rounds=2)
            reload = asyncio.ensure_future(calls.Reload(reload_request(str(other))))
            refused = None
            while refused is None or refused.failure.reason != "UNAVAILABLE":
                late = target_session(stream, PROMPTS[0], GREEDY)
                late.open()
                event = (await stream.next(late.id)).event
                refused = event if hasattr(event, "failure") else None
                late.close()
            # The session that was open ends as it began: on the old weights.
            answer = await session.run()
            assert len(answer.ids) == GREEDY.max_tokens
            info = decode_model_info(await reload)
            await asyncio.wait_for(stream.ended.wait(), 10)
            assert stream.error is None
        async with target_stream(channel) as stream:
            assert stream.welcome.info == info
            assert (await target_session(stream, PROMPTS[0], GREEDY).run()).ids != answer.ids


async def test_a_model_that_can_not_be_loaded_leaves_the_present_one(folder: Path, tmp_path: Path):
    async with served(settings_for(folder)) as channel:
        calls = worker_pb2_grpc.WorkerServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await calls.Reload(reload_request(str(tmp_path / "nowhere")))
        error = error_from_rpc(caught.value)
        assert (error.reason, error.field) == ("INVALID_ARGUMENT", "model")
        async with target_stream(channel) as stream:
            assert (await target_session(stream, PROMPTS[0], GREEDY).run()).ids


async def test_a_start_without_a_model_fails_with_one_sentence(tmp_path: Path):
    with pytest.raises(ModelError):
        await serve(settings_for(tmp_path / "nowhere"))


async def test_a_malformed_message_ends_its_stream_with_the_field(folder: Path):
    async with served(settings_for(folder)) as channel:
        good = target_session(Stream(b"q" * 16), PROMPTS[0], GREEDY)
        message = validator.encode_request(
            ToWorker([Addressed(Header(b"s" * 16, 1, 1, 20), good.opening)], hello=Hello(b"q" * 16))
        )
        message.commands[0].open.tokens.shape[0] = 3

        async def requests():
            yield message

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in validator_pb2_grpc.ValidatorServiceStub(channel).Verify(requests()):
                pass
        error = error_from_rpc(caught.value)
        assert (error.reason, error.field) == ("INVALID_ARGUMENT", "open.tokens")
        async with target_stream(channel) as stream:
            assert (await target_session(stream, PROMPTS[0], GREEDY).run()).ids


async def test_stop_says_go_away_and_ends(folder: Path):
    settings = settings_for(folder, grace_s=20)
    context = serving(serve, settings)
    address = await context.__aenter__()
    async with channel_to(address) as channel, target_stream(channel) as stream:
        session = target_session(stream, PROMPTS[0], GREEDY)
        await session.run(max_rounds=1)
        stopping = asyncio.ensure_future(context.__aexit__(None, None, None))
        assert (await stream.until_go_away()).deadline_ms == 20_000
        assert len((await session.run()).ids) == GREEDY.max_tokens
        await asyncio.wait_for(stream.ended.wait(), 10)
        assert stream.error is None
        await asyncio.wait_for(stopping, 10)
