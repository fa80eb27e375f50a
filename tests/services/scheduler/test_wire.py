"""The scheduler process against real gRPC workers that follow a script."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest

from outrider.rpc.channel import open_channel
from outrider.rpc.errors import InvalidArgument, NoEqualReplica, NotFound, Unavailable, error_from_rpc
from outrider.sampling.acceptance import FinishReason
from outrider.sampling.parameters import SamplingParameters
from outrider.v1 import scheduler_pb2_grpc
from outrider.wire import scheduler as wire
from outrider.wire.draft import OpenDraft, Proposal, Propose
from outrider.wire.generation import DraftSource, Failure, Speculation
from outrider.wire.scheduler import Committed, Finished, FinishRequest, GenerateRequest, Started
from outrider.wire.state import SchedulerState, WorkerStatus
from outrider.wire.validator import OpenTarget, Verify
from outrider.wire.worker import Addressed, Close, Resume, TokenizerFiles
from services.scheduler.server import serve
from services.scheduler.settings import SchedulerSettings
from tests.support.reference_target import Generation, ReferenceTarget, model_info
from tests.support.scripted_workers import (
    Wish,
    hostile,
    oracle,
    scripted_draft,
    scripted_validator,
    serving,
    silent,
    wrong_at,
)
from tests.support.waiting import until

PROMPT = (5, 6, 7, 8, 9, 5, 6)
TARGET = ReferenceTarget()
SAMPLING = SamplingParameters(max_tokens=48, logprobs=1)


def plain(request: GenerateRequest) -> list[int]:
    generation = Generation(len(request.prompt), request.sampling, request.seed, request.choice)
    return TARGET.plain(request.prompt, generation)


def asked(**changes: Any) -> GenerateRequest:
    return GenerateRequest(**{"prompt": PROMPT, "sampling": SAMPLING, "seed": 3, **changes})


@dataclass
class Client:
    """The contract from a caller's side."""

    stub: Any
    stop: asyncio.Event

    async def events(self, request: GenerateRequest) -> AsyncIterator[Any]:
        async for message in self.stub.Generate(wire.encode_generate(request)):
            yield wire.decode_event(message)

    async def generate(self, request: GenerateRequest) -> tuple[list[int], Any]:
        events = [event async for event in self.events(request)]
        assert isinstance(events[0], Started)
        ids = [token for event in events if isinstance(event, Committed) for token in event.tokens]
        return ids, events[-1]

    async def refused(self, request: GenerateRequest) -> Exception:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await self.generate(request)
        return error_from_rpc(raised.value)

    async def state(self) -> SchedulerState:
        return wire.decode_describe(await self.stub.Describe(wire.describe_request()))

    async def until(self, holds) -> SchedulerState:
        async for message in self.stub.Watch(wire.watch_request()):
            if holds(state := wire.decode_watch(message)):
                return state
        raise AssertionError("the watch ended")


@asynccontextmanager
async def scheduler(*, wait_for: str = "all", **changes: Any) -> AsyncIterator[Client]:
    """A scheduler on a free port; `wait_for` says which links must be up: all, validators, nothing."""
    settings = SchedulerSettings(
        port=0, **{"drafts": (), "reopen_deadline_s": 10.0, "grace_s": 0.0, **changes}
    )
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    task = asyncio.create_task(serve(settings, ready=ready, stop=stop))
    try:
        async with open_channel(f"127.0.0.1:{await ready}") as channel:
            client = Client(scheduler_pb2_grpc.SchedulerServiceStub(channel), stop)
            groups = {"all": ("validators", "drafts"), "validators": ("validators",), "nothing": ()}[wait_for]
            await client.until(
                lambda state: all(
                    each.status is WorkerStatus.READY for group in groups for each in getattr(state, group)
                )
            )
            yield client
    finally:
        stop.set()
        await task


@asynccontextmanager
async def system(validators, drafts=(), **changes: Any) -> AsyncIterator[Client]:
    """Workers and their scheduler."""
    async with AsyncExitStack() as stack:
        v = [await stack.enter_async_context(serving(worker)) for worker in validators]
        d = [await stack.enter_async_context(serving(worker)) for worker in drafts]
        yield await stack.enter_async_context(scheduler(validators=tuple(v), drafts=tuple(d), **changes))


async def test_an_answer_with_its_counters_and_logprobs():
    validator, draft = scripted_validator(), scripted_draft(oracle(TARGET))
    async with system([validator], [draft]) as client:
        events = [event async for event in client.events(asked())]
        await client.until(lambda state: state.num_sessions == 0)
    started, *rounds, finished = events
    assert (started.numerics_id, len(started.session)) == ("numerics", 16)
    assert [token for event in rounds for token in event.tokens] == plain(asked())
    assert all(len(event.logprobs) == len(event.tokens) for event in rounds)
    assert finished.finish_reason is FinishReason.LENGTH
    assert finished.counters.accepted == finished.counters.drafted > 30
    assert finished.draft_status == ""
    assert not validator.brain.sessions
    assert not draft.brain.sessions


@pytest.mark.parametrize("source", list(DraftSource)[:3])
@pytest.mark.parametrize("k", [0, 1, 8])
async def test_ids_do_not_depend_on_k_and_source(source, k):
    async with system([scripted_validator()], [scripted_draft(wrong_at(2, TARGET))]) as client:
        request = asked(speculation=Speculation(k=k, source=source))
        ids, finished = await client.generate(request)
    assert ids == plain(request)
    assert (finished.counters.drafted > 0) == (k > 0 and source is not DraftSource.NONE)


async def test_many_sessions_share_the_streams():
    validator, draft = scripted_validator(), scripted_draft(wrong_at(3, TARGET))
    requests = [asked(seed=seed, choice=seed % 3) for seed in range(24)]
    async with system([validator], [draft]) as client:
        answers = await asyncio.gather(*(client.generate(request) for request in requests))
    assert [ids for ids, _ in answers] == [plain(request) for request in requests]
    assert validator.num_streams == draft.num_streams == 1


@pytest.mark.parametrize("seed", range(3))
async def test_c43_a_hostile_draft(seed):
    async with system([scripted_validator()], [scripted_draft(hostile(seed))]) as client:
        ids, finished = await client.generate(asked(speculation=Speculation(k=4, w=2)))
    assert ids == plain(asked())
    assert isinstance(finished, Finished)


def broken_tree(response: Any) -> Any:
    for event in response.events:
        if event.HasField("proposal"):
            event.proposal.parents.CopyFrom(event.proposal.tokens)
    return response


def broken_tensor(response: Any) -> Any:
    for event in response.events:
        if event.HasField("proposal"):
            event.proposal.tokens.data += b"\1"
    return response


def empty_event(response: Any) -> Any:
    response.events.add()
    return response


@pytest.mark.parametrize("mangle", [broken_tree, broken_tensor, empty_event])
async def test_c43_a_draft_whose_messages_can_not_be_decoded(mangle):
    draft = scripted_draft(oracle(TARGET), mangle=mangle)
    async with system([scripted_validator()], [draft]) as client:
        ids, finished = await client.generate(asked())
        again, _ = await client.generate(asked())
    assert ids == again == plain(asked())
    assert finished.draft_status in ("absent", "slow")


async def test_c55_answers_for_nobody_are_dropped():
    of_another_seed = Wish(PROMPT, Generation(len(PROMPT), SAMPLING, 99), 4, 1)
    wrong = Proposal(oracle(TARGET)(of_another_seed))

    def stray(header):
        return [
            Addressed(replace(header, session=b"another-session!"), wrong),
            Addressed(replace(header, epoch=header.epoch + 1), wrong),
            Addressed(replace(header, round=header.round + 1), wrong),
            Addressed(replace(header, base_length=header.base_length + 1), wrong),
        ]

    draft = scripted_draft(oracle(TARGET), stray=stray)
    async with system([scripted_validator()], [draft]) as client:
        ids, finished = await client.generate(asked())
    assert ids == plain(asked())
    # Had one of them been taken, its tokens would have been refused.
    assert finished.counters.accepted == finished.counters.drafted > 30


async def test_repeated_answers_change_nothing():
    validator, draft = scripted_validator(say_twice=True), scripted_draft(oracle(TARGET), say_twice=True)
    async with system([validator], [draft]) as client:
        ids, _ = await client.generate(asked())
    assert ids == plain(asked())


async def test_c59_a_silent_draft():
    async with system([scripted_validator()], [scripted_draft(silent)], draft_wait_ms=30) as client:
        ids, finished = await client.generate(asked())
    assert ids == plain(asked())
    assert finished.draft_status == "slow"


async def test_c59_a_slow_draft():
    draft = scripted_draft(oracle(TARGET), delay_s=0.05)
    async with system([scripted_validator()], [draft], draft_wait_ms=5) as client:
        ids, finished = await client.generate(asked())
    assert ids == plain(asked())
    assert finished.draft_status == "slow"
    assert finished.counters.missed_proposals > 0


@pytest.mark.parametrize("round_", [1, 2, 4])
async def test_c61_the_draft_dies_in_the_middle(round_):
    draft = scripted_draft(oracle(TARGET), cut=lambda header, _: header.round >= round_)
    async with system([scripted_validator()], [draft], draft_wait_ms=200) as client:
        ids, finished = await client.generate(asked())
    assert ids == plain(asked())
    assert finished.draft_status != ""


async def test_c61_no_draft_ever_answers_the_address():
    async with system(
        [scripted_validator()], drafts=(), wait_for="validators", default_source="model"
    ) as client:
        ids, finished = await client.generate(asked())
    assert ids == plain(asked())
    assert finished.draft_status == "absent"
    assert finished.counters.accepted > 0  # by n-gram


async def test_a_draft_joins_in_the_middle_of_a_session():
    validator, draft = scripted_validator(), scripted_draft(oracle(TARGET))
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(serving(validator))
        # A port that was free a moment ago.
        async with serving(draft) as address:
            pass
        client = await stack.enter_async_context(
            scheduler(validators=(at,), drafts=(address,), wait_for="validators")
        )
        events = client.events(asked(speculation=Speculation(k=2)))
        ids = []
        for _ in range(3):
            event = await anext(events)
            ids += event.tokens if isinstance(event, Committed) else ()
        validator.gate.clear()
        await stack.enter_async_context(serving(draft, int(address.rpartition(":")[2])))
        await client.until(lambda state: state.drafts[0].status is WorkerStatus.READY)
        validator.gate.set()
        async for event in events:
            ids += event.tokens if isinstance(event, Committed) else ()
    assert ids == plain(asked())
    assert draft.brain.opened_with(OpenDraft)
    assert draft.brain.opened_with(Propose)


async def test_c41_a_draft_with_another_tokenizer_is_refused_with_sizes_and_the_id():
    vocab = b'{"model": {"vocab": {"a": 0, "b": 1, "c": 2}}}'
    other = b'{"model": {"vocab": {"a": 0, "x": 1, "c": 2, "d": 3}}}'
    validator = scripted_validator(tokenizer=TokenizerFiles(vocab, "", {}, "tokenizer"))
    draft = scripted_draft(
        oracle(TARGET),
        model_info(model="foreign", tokenizer_fingerprint="other"),
        tokenizer=TokenizerFiles(other, "", {}, "other"),
    )
    async with system([validator], [draft], wait_for="validators") as client:
        state = await client.until(lambda state: state.drafts[0].status is WorkerStatus.REFUSED)
        ids, finished = await client.generate(asked())
    why = "reference has 3 ids and foreign 4, and id 1 is 'b' in the first and 'x' in the second"
    assert why in state.drafts[0].reason
    assert ids == plain(asked())
    assert finished.draft_status.startswith("refused:")
    assert why in finished.draft_status
    assert not draft.brain.received


async def test_c40_a_padded_draft_of_the_same_tokenizer_fits():
    padded = b'{"model": {"vocab": {"a": 0, "b": 1, "pad": 2}}}'
    draft = scripted_draft(
        oracle(TARGET),
        model_info(tokenizer_fingerprint="padded"),
        tokenizer=TokenizerFiles(padded, "", {}, "padded"),
    )
    async with system([scripted_validator()], [draft]) as client:
        ids, finished = await client.generate(asked())
    assert ids == plain(asked())
    assert finished.counters.accepted > 30


@pytest.mark.parametrize("revision", [(2, 3), (0, 0)])
async def test_c78_another_protocol_revision_is_refused_naming_both(revision):
    draft = scripted_draft(oracle(TARGET), revision=revision)
    async with system([scripted_validator()], [draft], wait_for="validators") as client:
        state = await client.until(lambda state: state.drafts[0].status is WorkerStatus.REFUSED)
        ids, finished = await client.generate(asked())
    assert f"revisions {revision[0]} to {revision[1]}, this scheduler 1 to 1" in state.drafts[0].reason
    assert ids == plain(asked())
    assert "revision" in finished.draft_status


# Loss of the validator.


@pytest.mark.parametrize("moment", ["cut", "cut_after"])
@pytest.mark.parametrize("round_", [1, 2, 4])
async def test_the_stream_of_the_validator_breaks_and_the_session_resumes(moment, round_):
    validator = scripted_validator()
    broken = []

    def once(header, command):
        if header.round == round_ and isinstance(command, OpenTarget | Verify) and not broken:
            broken.append(header)
            return True
        return False

    setattr(validator, moment, once)
    async with system([validator], [scripted_draft(wrong_at(2, TARGET))]) as client:
        ids, finished = await client.generate(asked())
    assert ids == plain(asked())
    assert finished.counters.reopens == 1
    assert validator.num_streams == 2
    assert len(validator.brain.opened_with(Resume)) == (round_ > 1)


@pytest.mark.parametrize("round_", [1, 3])
async def test_a_killed_validator_is_replaced_by_one_of_equal_bits(round_):
    first, second = scripted_validator(), scripted_validator()
    second.info = replace(second.info, instance_id=b"instance-0000002")
    reached = asyncio.Event()

    def hold(header, command):
        if header.round == round_ and isinstance(command, OpenTarget | Verify):
            reached.set()
            first.gate.clear()
        return False

    first.cut = hold
    async with AsyncExitStack() as stack:
        dying = AsyncExitStack()
        at = await dying.enter_async_context(serving(first))
        draft_at = await stack.enter_async_context(serving(scripted_draft(oracle(TARGET))))
        second_at = await stack.enter_async_context(serving(second))
        client = await stack.enter_async_context(scheduler(validators=(at, second_at), drafts=(draft_at,)))
        # One session on each of the two.
        sessions = [asyncio.create_task(client.generate(asked(seed=seed))) for seed in (3, 3)]
        await reached.wait()
        await dying.aclose()
        answers = await asyncio.gather(*sessions)
    assert [ids for ids, _ in answers] == [plain(asked())] * 2
    assert sorted(finished.counters.reopens for _, finished in answers) == [0, 1]


async def test_without_an_equal_replica_the_error_comes_in_band():
    validator = scripted_validator(cut=lambda header, _: header.round == 3)
    async with AsyncExitStack() as stack:
        dying = AsyncExitStack()
        at = await dying.enter_async_context(serving(validator))
        client = await stack.enter_async_context(scheduler(validators=(at,), reopen_deadline_s=0.1))
        events = client.events(asked(speculation=Speculation(k=0)))
        seen = [await anext(events) for _ in range(3)]
        await dying.aclose()
        seen += [event async for event in events]
    assert isinstance(seen[-1], Failure)
    assert (seen[-1].reason, seen[-1].retryable) == ("NO_EQUAL_REPLICA", True)


async def test_a_validator_that_goes_away_is_left():
    first, second = scripted_validator(), scripted_validator()
    second.info = replace(second.info, instance_id=b"instance-0000002")
    async with AsyncExitStack() as stack:
        at = [await stack.enter_async_context(serving(worker)) for worker in (first, second)]
        client = await stack.enter_async_context(scheduler(validators=tuple(at)))
        events = client.events(asked(speculation=Speculation(k=0)))
        ids = []
        for _ in range(4):
            event = await anext(events)
            ids += event.tokens if isinstance(event, Committed) else ()
        busy, idle = (first, second) if first.brain.sessions else (second, first)
        busy.gate.clear()
        busy.go_away()
        busy.gate.set()
        async for event in events:
            ids += event.tokens if isinstance(event, Committed) else ()
    assert ids == plain(asked())
    assert idle.brain.opened_with(OpenTarget)
    assert not busy.brain.sessions


# The caller's side.


async def test_c79_a_caller_that_goes_away_frees_both_sides():
    validator, draft = scripted_validator(), scripted_draft(oracle(TARGET))
    async with system([validator], [draft]) as client:
        call = client.stub.Generate(wire.encode_generate(asked()))
        for _ in range(3):
            await call.read()
        validator.gate.clear()
        call.cancel()
        await client.until(lambda state: state.num_sessions == 0)
        await until(lambda: not (validator.brain.sessions or draft.brain.sessions))
    assert validator.brain.opened_with(Close)
    assert draft.brain.opened_with(Close)


async def test_finish_cuts_both_sides_and_the_counters():
    validator, draft = scripted_validator(), scripted_draft(oracle(TARGET))
    async with system([validator], [draft]) as client:
        events = client.events(asked())
        started = await anext(events)
        ids = []
        while len(ids) < 11:
            ids += (await anext(events)).tokens
        request = FinishRequest(started.session, 8, FinishReason.STOP_STRING)
        returned = wire.decode_finish_response(await client.stub.Finish(wire.encode_finish(request)))
        rest = [event async for event in events]
        again = wire.decode_finish_response(await client.stub.Finish(wire.encode_finish(request)))
        await until(lambda: not (validator.brain.sessions or draft.brain.sessions))
    assert rest[-1] == returned
    assert returned.finish_reason is FinishReason.STOP_STRING
    assert returned.counters.committed == 7
    assert again.counters.committed == 7


async def test_finish_of_an_unknown_session():
    async with system([scripted_validator()]) as client:
        request = FinishRequest(b"0123456789abcdef", 1, FinishReason.STOP_STRING)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.stub.Finish(wire.encode_finish(request))
    assert isinstance(error_from_rpc(raised.value), NotFound)


def sampling(**changes: Any) -> SamplingParameters:
    return replace(SAMPLING, **changes)


@pytest.mark.parametrize(
    ("field", "words", "changes"),
    [
        ("prompt", "prompt is empty", {"prompt": ()}),
        ("prompt", "prompt[1] is 997; ids of reference go from 0 to 996", {"prompt": (1, 997)}),
        ("prompt", "prompt[0] is -1", {"prompt": (-1,)}),
        (
            "prompt",
            "prompt has 4096 tokens, and the context of reference ends at 4096",
            {"prompt": (1,) * 4096},
        ),
        ("sampling.top_p", "top_p is 0", {"sampling": sampling(top_p=0.0)}),
        ("sampling.temperature", "temperature is nan", {"sampling": sampling(temperature=float("nan"))}),
        ("sampling.max_tokens", "max_tokens is 0", {"sampling": sampling(max_tokens=0)}),
        ("sampling.stop_ids", "id 5000", {"sampling": sampling(stop_ids=(5000,))}),
        ("sampling.logit_bias", "id 5000", {"sampling": sampling(logit_bias=((5000, 1.0),))}),
        ("speculation.k", "speculation.k is 17, the limit is 16", {"speculation": Speculation(k=17)}),
        ("speculation.w", "give 1 to 8", {"speculation": Speculation(w=0)}),
        ("speculation.w", "give 1 to 8", {"speculation": Speculation(w=9)}),
        (
            "speculation.source",
            "choose one of none, candidate_cache, ngram, pattern_cache, model",
            {"speculation": Speculation(source=DraftSource.GRAMMAR)},
        ),
        ("numerics_id", "numerics_id is empty", {"output_so_far": (1,)}),
        ("output_so_far", "output_so_far[0] is 997", {"output_so_far": (997,), "numerics_id": "numerics"}),
        ("output_so_far", "nothing is left", {"output_so_far": (1,) * 48, "numerics_id": "numerics"}),
    ],
)
async def test_c64_bad_requests_name_their_field(field, words, changes):
    validator = scripted_validator()
    async with system([validator]) as client:
        error = await client.refused(asked(**changes))
        ids, _ = await client.generate(asked())
    assert isinstance(error, InvalidArgument)
    assert error.field == field
    assert words in error.message
    assert ids == plain(asked())
    assert len(validator.brain.opened_with(OpenTarget)) == 1


async def test_output_of_another_scheduler_is_continued():
    whole = plain(asked())
    async with system([scripted_validator()]) as client:
        ids, _ = await client.generate(asked(output_so_far=tuple(whole[:9]), numerics_id="numerics"))
    assert ids == whole[9:]


async def test_output_of_other_bits_is_not_continued():
    async with system([scripted_validator()], validator_wait_s=0.05) as client:
        error = await client.refused(asked(output_so_far=(1,), numerics_id="others"))
    assert isinstance(error, NoEqualReplica)


async def test_without_a_validator_the_reason_is_told():
    async with serving(scripted_validator()) as address:
        pass
    async with scheduler(validators=(address,), wait_for="nothing", validator_wait_s=0.05) as client:
        error = await client.refused(asked())
    assert isinstance(error, Unavailable)
    assert address in error.message
    assert error.retry_after_s == 1.0


async def test_a_request_waits_for_a_validator_that_is_starting():
    worker = scripted_validator()
    async with serving(worker) as address:
        pass
    async with scheduler(validators=(address,), wait_for="nothing", validator_wait_s=20) as client:
        answer = asyncio.create_task(client.generate(asked()))
        await asyncio.sleep(0.05)
        async with serving(worker, int(address.rpartition(":")[2])):
            ids, _ = await answer
    assert ids == plain(asked())


async def test_validators_of_another_tokenizer_are_refused():
    other = scripted_validator(ReferenceTarget(model_info(model="other", tokenizer_fingerprint="x")))
    other.tokenizer = TokenizerFiles(b'{"model": {"vocab": {"z": 0}}}', "", {}, "x")
    async with system([scripted_validator(), other], wait_for="nothing") as client:
        state = await client.until(
            lambda state: (
                {each.status for each in state.validators} == {WorkerStatus.READY, WorkerStatus.REFUSED}
            )
        )
    assert any("tokenizers differ" in each.reason for each in state.validators)


async def test_a_target_of_another_tokenizer_takes_over_and_drafts_are_judged_anew():
    newer = ReferenceTarget(model_info(model="newer", tokenizer_fingerprint="x"))
    files = TokenizerFiles(b'{"model": {"vocab": {"z": 0}}}', "", {}, "x")
    old, new = scripted_validator(), scripted_validator(newer, tokenizer=files)
    draft = scripted_draft(oracle(newer), newer.info, tokenizer=files)
    async with AsyncExitStack() as stack:
        ending = AsyncExitStack()
        old_at = await ending.enter_async_context(serving(old))
        draft_at = await stack.enter_async_context(serving(draft))
        async with serving(new) as new_at:
            pass
        client = await stack.enter_async_context(
            scheduler(validators=(old_at, new_at), drafts=(draft_at,), wait_for="nothing")
        )
        await client.until(lambda state: state.drafts[0].status is WorkerStatus.REFUSED)
        await ending.aclose()
        await client.until(lambda state: state.validators[0].status is WorkerStatus.UNREACHABLE)
        await stack.enter_async_context(serving(new, int(new_at.rpartition(":")[2])))
        await client.until(lambda state: state.drafts[0].status is WorkerStatus.READY)
        ids, finished = await client.generate(asked())
    assert ids == plain(asked())
    assert finished.counters.accepted > 30


async def test_a_drain_ends_watches_and_lets_sessions_end():
    validator = scripted_validator()
    async with system([validator], grace_s=30.0) as client:
        watch = client.stub.Watch(wire.watch_request())
        await watch.read()
        events = client.events(asked())
        await anext(events)
        validator.gate.clear()
        client.stop.set()
        while (await watch.read()) is not grpc.aio.EOF:
            pass
        validator.gate.set()
        rest = [event async for event in events]
    assert isinstance(rest[-1], Finished)
    assert [token for event in rest[:-1] for token in event.tokens] == plain(asked())
