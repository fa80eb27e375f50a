"""One trace per session: a span per round, with the draft's and the target's below it."""

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from outrider.telemetry import Attr, SpanName, context_from, tracing_to
from outrider.wire.generation import DraftSource
from outrider.wire.validator import OpenTarget
from services.scheduler.spans import SessionSpan
from tests.support.fake_ports import Fault
from tests.support.scripted_workers import oracle, silent

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def traced(bench):
    """The bench with spans kept in memory; `spans(name)` after the run."""
    exporter = InMemorySpanExporter()
    tracing = tracing_to(SimpleSpanProcessor(exporter), "scheduler", "test")

    def session(**changes):
        made = bench.session(**changes)
        made._span = SessionSpan(tracing, context_from(PARENT), made.id, made._facts.request)
        return made

    def spans(name):
        return [span for span in exporter.get_finished_spans() if span.name == name]

    return session, spans


@pytest.mark.parametrize("source", [DraftSource.MODEL, DraftSource.NGRAM])
async def test_c75_each_round_has_its_draft_and_its_verify_span(bench, run, traced, source):
    session, spans = traced
    validator, draft = bench.validator(), bench.draft(oracle(bench.target))
    delivered = await run(session(k=4, source=source))
    (whole,) = spans(SpanName.SESSION)
    rounds = spans(SpanName.ROUND)
    counters = delivered.finished.counters
    assert f"{whole.parent.span_id:016x}" == "b7ad6b7169203331"
    assert whole.attributes[Attr.ROUNDS] == counters.rounds
    assert whole.attributes[Attr.FINISH_REASON] == "length"
    assert [span.attributes[Attr.ROUND] for span in rounds] == list(range(1, len(rounds) + 1))
    assert sum(span.attributes[Attr.COMMITTED] for span in rounds) == 60
    assert sum(span.attributes[Attr.ACCEPTED] for span in rounds) == counters.accepted
    assert sum(span.attributes[Attr.DRAFTED] for span in rounds) == counters.drafted
    assert not any(span.attributes[Attr.DISCARDED] for span in rounds)
    assert {span.context.trace_id for span in (*rounds, whole)} == {whole.context.trace_id}
    for round_ in rounds:
        assert round_.parent.span_id == whole.context.span_id
        below = [span for name in (SpanName.DRAFT, SpanName.VERIFY) for span in spans(name)]
        names = [span.name for span in below if span.parent.span_id == round_.context.span_id]
        # The last round has room for the target's own token alone.
        expected = [SpanName.DRAFT, SpanName.VERIFY] if round_.attributes[Attr.K] else [SpanName.VERIFY]
        assert names == expected
    # What the workers were told is the client span of that very call.
    told = [header.traceparent.split("-")[2] for header, _ in validator.asked]
    assert told == [f"{span.context.span_id:016x}" for span in spans(SpanName.VERIFY)]
    if source is DraftSource.MODEL:
        asked = [header.traceparent.split("-")[2] for header, _ in draft.asked]
        assert asked == [f"{span.context.span_id:016x}" for span in spans(SpanName.DRAFT)]


async def test_a_late_draft_shows_on_the_round(bench, run, traced):
    session, spans = traced
    bench.validator()
    bench.draft(silent)
    await run(session())
    statuses = [span.attributes[Attr.DRAFT_STATUS] for span in spans(SpanName.ROUND)]
    assert statuses[0] == "ok"
    assert set(statuses[1:]) == {"slow"}


async def test_the_status_is_that_of_the_round(bench, run, traced):
    session, spans = traced
    bench.validator()
    bench.draft(oracle(bench.target), lambda header, _: Fault.HELD if header.round == 3 else Fault.NONE)
    await run(session())
    statuses = [span.attributes[Attr.DRAFT_STATUS] for span in spans(SpanName.ROUND)]
    assert statuses[2] == "slow"
    assert set(statuses[:2] + statuses[3:]) == {"ok"}


async def test_a_round_that_is_dropped_says_so(bench, traced):
    session, spans = traced
    bench.validator(lambda header, _: Fault.HELD if header.round == 3 else Fault.NONE)
    events = session(k=0).run()
    for _ in range(3):
        await anext(events)
    await events.aclose()
    assert [span.attributes[Attr.DISCARDED] for span in spans(SpanName.ROUND)] == [False, False]


async def test_unsampled_events_carry_no_headers(bench, run):
    validator = bench.validator()
    await run(bench.session())
    assert {(header.traceparent, header.tracestate) for header, _ in validator.asked} == {("", "")}
    assert validator.brain.opened_with(OpenTarget)
