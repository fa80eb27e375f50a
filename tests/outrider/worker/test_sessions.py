"""The rules of a worker's stream, on a validator over the fake runtime."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from outrider.rpc.errors import FailedPrecondition, InvalidArgument
from outrider.sampling import DraftTree, SamplingParameters
from outrider.wire.validator import Verdict, Verify
from outrider.wire.worker import Close, Header, Hello, Resume, SessionError, Stale, ToWorker
from services.validator.role import Validating
from tests.support.fake_runtime import FakeRuntime, Hold
from tests.support.worker_streams import LIMITS, expected, seam, target_session

PROMPT = (5, 9, 11, 7)
GREEDY = SamplingParameters(temperature=0.0, max_tokens=20)
PEER = b"p" * 16
NO_DRAFT = DraftTree.empty()


def reference(runtime: FakeRuntime, prompt: tuple[int, ...] = PROMPT) -> list[int]:
    return expected(
        runtime.logits, prompt, GREEDY, vocab_size=40, eos_ids=runtime.info.eos_ids, context_length=512
    ).ids


async def test_c55_a_round_with_another_base_length_is_stale():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY)
        await session.run(max_rounds=3)
        stream.send((Header(session.id, 1, 9, len(PROMPT) + 1), Verify(NO_DRAFT)))
        header = await session.stale()
        assert (header.epoch, header.round, header.base_length) == (1, 9, len(PROMPT) + 3)
        # It changed nothing.
        assert (await session.run()).ids == reference(runtime)


async def test_a_repeated_round_gets_the_same_verdict_and_changes_nothing():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY)
        await session.run(max_rounds=2)
        header = session.header()
        session.verify(DraftTree.chain(reference(runtime)[2:4]))
        answered = Header(session.id, 1, session.round, header.base_length)
        verdict = await session.verdict()
        num_steps = len(runtime.steps)
        for _ in range(3):
            stream.send((answered, Verify(DraftTree.chain([1]))))
            assert await stream.next(session.id) == (answered, verdict)
        assert len(runtime.steps) == num_steps
        assert (await session.run()).ids == reference(runtime)
        # The last one too, though the session has ended with it.
        last = session.answer.verdicts[-1]
        header = Header(session.id, 1, session.round, len(session.tokens) - len(last.committed))
        stream.send((header, Verify(NO_DRAFT)))
        assert (await stream.next(session.id)).event == last


async def test_a_round_that_is_on_its_way_is_not_run_twice():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY)
        await session.run(max_rounds=1)
        hold = Hold(runtime)
        session.verify(NO_DRAFT)
        stream.send((session.header(), Verify(NO_DRAFT)))
        await hold.reached()
        hold.release()
        await session.verdict()
        await worker.settled()
        assert stream.num_unread(session.id) == 0
        assert session.answer.ids == reference(runtime)[:2]


async def test_more_rounds_than_credit_end_that_session_alone():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        greedy, other = (target_session(stream, PROMPT, GREEDY) for _ in range(2))
        greedy.open()
        credit = (await greedy.opened()).credit
        await other.run(max_rounds=1)
        stream.send(
            *((Header(greedy.id, 1, 1 + extra, len(PROMPT)), Verify(NO_DRAFT)) for extra in range(credit + 1))
        )
        events = [(await stream.next(greedy.id)).event]
        while not isinstance(events[-1], SessionError):
            events.append((await stream.next(greedy.id)).event)
        assert events[-1].failure.reason == "PROTOCOL_VIOLATION"
        assert (await other.run()).ids == reference(runtime)
        await worker.settled()
        assert runtime.num_free_pages == runtime.num_pages


async def test_credit_counts_the_round_inside_open():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY)
        opening = dataclasses.replace(session.opening, first=Verify(NO_DRAFT))
        stream.send(
            (Header(session.id, 1, 1, 4), opening),
            (Header(session.id, 1, 2, 5), Verify(NO_DRAFT)),
            (Header(session.id, 1, 3, 6), Verify(NO_DRAFT)),
        )
        await session.opened()
        assert (await session.error()).failure.reason == "PROTOCOL_VIOLATION"


async def test_a_second_round_may_follow_unanswered_and_is_verified_in_order():
    runtime = FakeRuntime()
    right = reference(runtime)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY)
        await session.run(max_rounds=1)
        # All of the first is accepted, so the second one's guessed base holds.
        base = len(session.tokens)
        stream.send(
            (Header(session.id, 1, 2, base), Verify(DraftTree.chain(right[1:3]))),
            (Header(session.id, 1, 3, base + 3), Verify(DraftTree.chain(right[4:6]))),
        )
        verdicts = [(await stream.next(session.id)).event for _ in range(2)]
        assert [verdict.committed for verdict in verdicts] == [tuple(right[1:4]), tuple(right[4:7])]
        # A guess that fails is Stale, and nothing else.
        stream.send(
            (Header(session.id, 1, 4, base + 6), Verify(NO_DRAFT)),
            (Header(session.id, 1, 5, base + 9), Verify(NO_DRAFT)),
        )
        assert isinstance((await stream.next(session.id)).event, Verdict)
        header, event = await stream.next(session.id)
        assert isinstance(event, Stale)
        assert (header.round, header.base_length) == (5, base + 7)


async def test_epochs_open_replaces_with_a_higher_one_only():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY)
        await session.run(max_rounds=4)
        session.open(NO_DRAFT)
        header = await session.stale()
        assert (header.epoch, header.base_length) == (1, len(PROMPT) + 4)
        session.epoch = 5
        session.open(NO_DRAFT)
        await session.opened()
        await session.verdict()
        # Events of the older epoch are dropped without an answer; a later one than the worker's is Stale.
        stream.send((Header(session.id, 4, 99, 1), Verify(NO_DRAFT)), (Header(session.id, 4, 0, 0), Close()))
        stream.send((Header(session.id, 6, 99, 1), Verify(NO_DRAFT)))
        assert (await session.stale()).epoch == 5
        assert (await session.run()).ids == reference(runtime)


async def test_unknown_sessions_are_stale_with_zeros_and_close_has_no_answer():
    async with seam(FakeRuntime(), Validating) as worker, worker.connect() as stream:
        nobody = b"n" * 16
        for command in (Verify(NO_DRAFT), Resume()):
            stream.send((Header(nobody, 3, 2, 17), command))
            header, event = await stream.next(nobody)
            assert isinstance(event, Stale)
            assert (header.epoch, header.base_length) == (0, 0)
        stream.send((Header(nobody, 3, 2, 17), Close()))
        await worker.settled()
        assert stream.num_unread(nobody) == 0


async def test_c79_close_purges_queued_work_and_frees_the_pages():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        first, second = (target_session(stream, PROMPT, GREEDY) for _ in range(2))
        await first.run(max_rounds=1)
        await second.run(max_rounds=1)
        hold = Hold(runtime)
        first.verify(NO_DRAFT)
        await hold.reached()
        num_steps = len(runtime.steps)
        second.verify(NO_DRAFT)
        second.close()
        first.close()
        # The reader reads on while the forward runs.
        await stream.requests.join()
        hold.release()
        await worker.settled()
        assert len(runtime.steps) == num_steps + 1
        assert runtime.num_free_pages == runtime.num_pages
        assert worker.engine.load.num_sessions == 0
        assert (await target_session(stream, PROMPT, GREEDY).run()).ids == reference(runtime)


async def test_resume_takes_a_session_over_with_the_missed_verdict():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker:
        async with worker.connect(PEER) as stream:
            session = target_session(stream, PROMPT, GREEDY)
            await session.run(max_rounds=3)
            session.verify(DraftTree.chain(reference(runtime)[3:6]))
            await worker.settled()
        # The verdict came while nobody listened. The peer stands where it was and sends its round again.
        async with worker.connect(PEER) as stream:
            session.stream = stream
            round_, base = session.round, len(session.tokens)
            session.epoch = 2
            stream.send(
                (Header(session.id, 2, 0, base), Resume()),
                (Header(session.id, 2, round_, base), Verify(DraftTree.chain(reference(runtime)[3:6]))),
            )
            verdict = await session.verdict()
            assert verdict.accepted == 3
            assert (await session.run()).ids == reference(runtime)
    assert runtime.num_free_pages == runtime.num_pages


async def test_a_session_is_resumed_by_a_higher_epoch_only():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect(PEER) as old, worker.connect(PEER) as new:
        session = target_session(old, PROMPT, GREEDY)
        await session.run(max_rounds=2)
        new.send((session.header(), Resume()))
        header, event = await new.next(session.id)
        assert isinstance(event, Stale)
        assert header.epoch == 1
        # Nor does a round that comes on another stream reach it.
        new.send((session.header(round_=3), Verify(NO_DRAFT)))
        assert isinstance((await new.next(session.id)).event, Stale)
        session.resume(new)
        assert (await session.run()).ids == reference(runtime)


async def test_resume_at_another_length_is_stale():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker:
        async with worker.connect(PEER) as stream:
            session = target_session(stream, PROMPT, GREEDY)
            await session.run(max_rounds=5)
        async with worker.connect(PEER) as stream:
            session.stream = stream
            stream.send((Header(session.id, 2, 0, len(session.tokens) - 3), Resume()))
            header = await session.stale()
            assert (header.epoch, header.base_length) == (1, len(session.tokens))
            # Opening it again from its tokens goes on where it stood.
            session.epoch = 3
            session.open(NO_DRAFT)
            await session.opened()
            await session.verdict()
            assert (await session.run()).ids == reference(runtime)


async def test_resume_gets_the_last_verdict_of_a_session_that_ended_meanwhile():
    runtime = FakeRuntime()
    right = reference(runtime)
    async with seam(runtime, Validating) as worker:
        async with worker.connect(PEER) as stream:
            session = target_session(stream, PROMPT, GREEDY)
            await session.run(max_rounds=len(right) - 2)
            session.verify(DraftTree.chain(right[-2:]))
            await worker.settled()
        assert runtime.num_free_pages == runtime.num_pages
        async with worker.connect(PEER) as stream:
            session.stream = stream
            session.epoch = 2
            stream.send(
                (Header(session.id, 2, 0, len(session.tokens)), Resume()),
                (session.header(), Verify(DraftTree.chain(right[-2:]))),
            )
            await session.verdict()
            assert session.finished
            assert session.answer.ids == right
            # The finished session is known no more but for this.
            stream.send((Header(session.id, 2, 77, len(session.tokens)), Verify(NO_DRAFT)))
            header, event = await stream.next(session.id)
            assert isinstance(event, Stale)
            assert (header.epoch, header.base_length) == (0, 0)


async def test_c62_equal_session_ids_of_two_peers_do_not_meet():
    runtime = FakeRuntime()
    shared = b"s" * 16
    prompts = (PROMPT, (8, 8, 3))
    async with seam(runtime, Validating) as worker, worker.connect() as one, worker.connect() as two:
        sessions = [
            target_session(stream, prompt, GREEDY, id=shared)
            for stream, prompt in zip((one, two), prompts, strict=True)
        ]
        for _ in range(6):
            for session in sessions:
                await session.run(max_rounds=1)
        sessions[0].close()
        await worker.settled()
        await sessions[1].run()
        assert sessions[1].answer.ids == reference(runtime, prompts[1])
        assert sessions[0].answer.ids == reference(runtime)[:6]


async def test_c62_state_of_a_silent_peer_is_freed_when_its_lease_ends():
    runtime = FakeRuntime()
    limits = dataclasses.replace(LIMITS, lease_s=0.05)
    async with seam(runtime, Validating, limits=limits) as worker:
        async with worker.connect(PEER) as stream:
            assert stream.welcome.lease_ms == 50
            session = target_session(stream, PROMPT, GREEDY)
            await session.run(max_rounds=3)
        assert runtime.num_free_pages < runtime.num_pages
        async with asyncio.timeout(10):
            await worker.engine.empty()
        assert runtime.num_free_pages == runtime.num_pages
        async with worker.connect(PEER) as stream:
            session.resume(stream)
            assert (await session.stale()).epoch == 0


async def test_an_opening_that_is_refused_does_not_leave_the_older_session_behind():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY)
        await session.run(max_rounds=2)
        assert runtime.num_free_pages < runtime.num_pages
        worker.engine.refuse_opens("full")
        session.epoch = 2
        session.open(NO_DRAFT)
        assert (await session.error()).failure.reason == "UNAVAILABLE"
        async with asyncio.timeout(10):
            await worker.engine.empty()
        assert runtime.num_free_pages == runtime.num_pages


async def test_only_open_is_refused_for_load():
    runtime = FakeRuntime()
    limits = dataclasses.replace(LIMITS, max_sessions=2)
    async with seam(runtime, Validating, limits=limits) as worker, worker.connect() as stream:
        held_sessions = [target_session(stream, PROMPT, GREEDY) for _ in range(2)]
        for session in held_sessions:
            await session.run(max_rounds=1)
        refused = target_session(stream, PROMPT, GREEDY)
        refused.open(NO_DRAFT)
        failure = (await refused.error()).failure
        assert (failure.reason, failure.retryable) == ("RESOURCE_EXHAUSTED", True)
        assert failure.retry_after_ms
        # A session that is opened again takes the place of its own.
        held_sessions[0].epoch = 2
        held_sessions[0].open(NO_DRAFT)
        await held_sessions[0].opened()
        await held_sessions[0].verdict()
        for session in held_sessions:
            assert (await session.run()).ids == reference(runtime)
        assert (await target_session(stream, PROMPT, GREEDY).run()).ids == reference(runtime)


async def test_go_away_comes_before_the_end_and_rounds_are_answered_until_then():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY)
        await session.run(max_rounds=1)
        drain = asyncio.create_task(worker.streams.drain(30.0))
        assert (await stream.until_go_away()).deadline_ms == 30_000
        late = target_session(stream, PROMPT, GREEDY)
        late.open(NO_DRAFT)
        failure = (await late.error()).failure
        assert (failure.reason, failure.retryable) == ("UNAVAILABLE", True)
        assert (await session.run()).ids == reference(runtime)
        # With the last session gone there is nothing to wait for.
        async with asyncio.timeout(10):
            await drain
            await stream.ended.wait()
        assert stream.error is None


async def test_a_stream_that_begins_in_a_drain_hears_of_its_end():
    async with seam(FakeRuntime(), Validating) as worker, worker.connect() as first:
        session = target_session(first, PROMPT, GREEDY)
        await session.run(max_rounds=1)
        drain = asyncio.create_task(worker.streams.drain(30.0))
        await first.until_go_away()
        async with worker.connect() as second:
            assert 0 < (await second.until_go_away()).deadline_ms <= 30_000
        session.close()
        async with asyncio.timeout(10):
            await drain


async def test_a_drain_does_not_wait_for_sessions_without_a_stream():
    runtime = FakeRuntime()
    async with seam(runtime, Validating, limits=dataclasses.replace(LIMITS, lease_s=600)) as worker:
        async with worker.connect(PEER) as stream:
            await target_session(stream, PROMPT, GREEDY).run(max_rounds=1)
        async with asyncio.timeout(10):
            await worker.streams.drain(600.0)
        await worker.settled()
    assert runtime.num_free_pages == runtime.num_pages


async def test_c78_revisions_that_do_not_overlap_are_refused_naming_both():
    async with seam(FakeRuntime(), Validating) as worker:

        async def greet(hello: Hello | None) -> None:
            async def requests() -> AsyncIterator[ToWorker[object]]:
                yield ToWorker(hello=hello)

            async for _ in worker.streams.serve(requests()):
                break

        with pytest.raises(FailedPrecondition, match=r"revisions 7 to 9.*1 to 1"):
            await greet(Hello(PEER, revision=9, minimum_revision=7))
        with pytest.raises(InvalidArgument, match="hello"):
            await greet(None)
        with pytest.raises(InvalidArgument, match="peer_id"):
            await greet(Hello(b"short"))
        await greet(Hello(PEER, revision=9, minimum_revision=1))


@pytest.mark.parametrize(
    ("header", "field"),
    [(Header(b"short", 1, 1, 4), "header.session"), (Header(b"e" * 16, 0, 1, 4), "header.epoch")],
)
async def test_open_needs_a_proper_header(header: Header, field: str):
    async with seam(FakeRuntime(), Validating) as worker, worker.connect() as stream:
        stream.send((header, target_session(stream, PROMPT, GREEDY).opening))
        event = (await stream.next(header.session)).event
        assert isinstance(event, SessionError)
        assert field in event.failure.message


async def test_load_is_told_with_every_message():
    runtime = FakeRuntime()
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY)
        await session.run(max_rounds=2)
        await worker.settled()
        assert worker.engine.load.num_sessions == 1
        assert worker.engine.load.num_pages == 64
        assert worker.engine.load.num_free_pages == 63
        assert worker.engine.load.num_waiting == 0
