"""Spans of rounds and forwards."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from outrider.sampling import DraftTree, SamplingParameters
from outrider.telemetry import Attr, SpanName, tracing_to
from outrider.telemetry.names import ATTRIBUTES
from services.draft.role import Drafting
from services.validator.role import Validating
from tests.support.fake_runtime import FakeRuntime, Hold
from tests.support.worker_streams import draft_session, seam, target_session

PROMPT = (5, 9, 11, 7)
GREEDY = SamplingParameters(temperature=0.0, max_tokens=6)
NO_DRAFT = DraftTree.empty()


def traceparent(number: int, *, sampled: bool = True) -> str:
    return f"00-{7:032x}-{number:016x}-0{int(sampled)}"


class Recorded:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracing = tracing_to(SimpleSpanProcessor(self._exporter), "outrider-worker", "one")

    def named(self, name: str) -> list[Any]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    @property
    def all(self) -> tuple[Any, ...]:
        return self._exporter.get_finished_spans()


@pytest.fixture
def recorded():
    recorded = Recorded()
    yield recorded
    recorded.tracing.shutdown()


async def test_c75_each_round_has_a_span_below_its_caller(recorded):
    runtime = FakeRuntime(eos_ids=())
    async with seam(runtime, Validating, tracing=recorded.tracing) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY, traceparent=traceparent(11))
        await session.run()
        await worker.settled()
    rounds = recorded.named(SpanName.CHECK)
    assert [span.attributes[Attr.ROUND] for span in rounds] == [1, 2, 3, 4, 5, 6]
    for number, span in enumerate(rounds):
        assert span.parent.span_id == 11
        assert span.parent.is_remote
        assert span.attributes[Attr.SESSION_ID] == session.id.hex()
        assert span.attributes[Attr.BASE_LENGTH] == len(PROMPT) + number
        assert (span.attributes[Attr.DRAFTED], span.attributes[Attr.COMMITTED]) == (0, 1)
        timings = session.answer.verdicts[number].timings
        assert span.attributes[Attr.QUEUE_US] == timings.queue_us
        assert span.attributes[Attr.COMPUTE_US] == timings.compute_us
        assert span.attributes[Attr.ROWS] == timings.rows == (len(PROMPT) if number == 0 else 1)
        assert span.attributes[Attr.MODEL_VERSION] == "version-target"
        assert span.attributes[Attr.NUMERICS_ID] == "numerics-target"
        assert span.start_time < span.end_time
    assert all(key in ATTRIBUTES for span in recorded.all for key in span.attributes)


async def test_a_batched_forward_links_to_each_sampled_round_that_it_served(recorded):
    runtime = FakeRuntime(eos_ids=())
    async with seam(runtime, Validating, tracing=recorded.tracing) as worker, worker.connect() as stream:
        parents = [traceparent(21), traceparent(22), traceparent(23, sampled=False), ""]
        sessions = [target_session(stream, PROMPT, GREEDY, traceparent=parent) for parent in parents]
        first = target_session(stream, PROMPT, GREEDY)
        hold = Hold(runtime)
        first.open(NO_DRAFT)
        await hold.reached()
        for session in sessions:
            session.open(NO_DRAFT)
        await stream.requests.join()
        hold.release()
        for session in sessions:
            await session.opened()
            await session.verdict()
        await worker.settled()
    rounds = recorded.named(SpanName.CHECK)
    assert {span.parent.span_id for span in rounds} == {21, 22}
    (forward,) = recorded.named(SpanName.FORWARD)
    assert forward.attributes[Attr.BATCH_SIZE] == 4
    assert forward.attributes[Attr.ROWS] == 16
    assert {link.context.span_id for link in forward.links} == {span.context.span_id for span in rounds}
    assert forward.parent.span_id in {span.context.span_id for span in rounds}
    assert forward.context.trace_id == 7


async def test_rounds_that_fail_or_are_dropped_end_their_spans(recorded):
    runtime = FakeRuntime(eos_ids=())
    runtime.nan_token = 33
    async with seam(runtime, Validating, tracing=recorded.tracing) as worker, worker.connect() as stream:
        broken = target_session(stream, (5, 33), GREEDY, traceparent=traceparent(31))
        broken.open(NO_DRAFT)
        await broken.opened()
        await broken.error()
        closed = target_session(stream, PROMPT, GREEDY, traceparent=traceparent(32))
        hold = Hold(runtime)
        other = target_session(stream, PROMPT, GREEDY)
        other.open(NO_DRAFT)
        await hold.reached()
        closed.open(NO_DRAFT)
        closed.close()
        await stream.requests.join()
        hold.release()
        await worker.settled()
    failed, discarded = recorded.named(SpanName.CHECK)
    assert failed.attributes["error.type"] == "NON_FINITE_LOGITS"
    assert not failed.status.is_ok
    assert discarded.parent.span_id == 32
    assert discarded.attributes[Attr.DISCARDED] is True


async def test_a_proposal_has_one_span_over_its_forwards(recorded):
    async with seam(FakeRuntime(), Drafting, tracing=recorded.tracing) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, GREEDY, traceparent=traceparent(41))
        session.open()
        await session.opened()
        proposal = await session.propose((), 3)
        await worker.settled()
    (span,) = recorded.named(SpanName.PROPOSE)
    assert (span.attributes[Attr.K], span.attributes[Attr.DRAFTED]) == (3, 3)
    forwards = recorded.named(SpanName.FORWARD)
    assert len(forwards) == proposal.timings.num_forwards == 3
    for forward in forwards:
        assert [link.context.span_id for link in forward.links] == [span.context.span_id]
        assert span.start_time <= forward.start_time <= forward.end_time


async def test_nothing_is_recorded_for_a_caller_that_is_not_sampled(recorded):
    async with (
        seam(FakeRuntime(), Validating, tracing=recorded.tracing) as worker,
        worker.connect() as stream,
    ):
        for parent in ("", traceparent(51, sampled=False), "nonsense"):
            await target_session(stream, PROMPT, GREEDY, traceparent=parent).run()
        await worker.settled()
    assert not recorded.all
