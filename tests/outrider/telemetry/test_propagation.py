import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN

from outrider.telemetry import (
    MAX_LINKS,
    context_from,
    context_from_metadata,
    context_of,
    links_to,
    metadata_of,
    trace_id_of,
    traceparent_of,
    tracestate_of,
    tracing_to,
)

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-2] + "00"


@pytest.fixture
def tracing():
    tracing = tracing_to(SimpleSpanProcessor(InMemorySpanExporter()), "test", "1")
    yield tracing
    tracing.shutdown()


def span_context(context):
    return trace.get_current_span(context).get_span_context()


def test_a_span_survives_the_wire(tracing):
    span = tracing.start_root("outrider.round")
    sent = traceparent_of(span)
    assert len(sent) == 55
    remote = span_context(context_from(sent, tracestate_of(span)))
    assert remote.is_remote
    assert (remote.trace_id, remote.span_id) == (
        span.get_span_context().trace_id,
        span.get_span_context().span_id,
    )
    assert trace_id_of(span) == sent[3:35]
    span.end()


def test_trace_state_goes_along(tracing):
    span = tracing.start_root("outrider.round", parent=context_from(SAMPLED, "vendor=1,other=2"))
    assert tracestate_of(span) == "vendor=1,other=2"
    assert span_context(context_from(traceparent_of(span), tracestate_of(span))).trace_state["vendor"] == "1"
    assert dict(metadata_of(span)) == {"traceparent": traceparent_of(span), "tracestate": "vendor=1,other=2"}
    span.end()


def test_what_is_not_sampled_is_empty_in_messages_but_said_in_calls(tracing):
    span = tracing.start_root("outrider.round", parent=context_from(UNSAMPLED))
    assert traceparent_of(span) == tracestate_of(span) == trace_id_of(span) == ""
    (pair,) = metadata_of(span)
    assert pair[0] == "traceparent"
    assert pair[1].endswith("-00")
    again = tracing.start_root("outrider.session", parent=context_from_metadata([pair]))
    assert not again.is_recording()


def test_no_span_means_nothing_to_send():
    assert traceparent_of(INVALID_SPAN) == tracestate_of(INVALID_SPAN) == trace_id_of(INVALID_SPAN) == ""
    assert metadata_of(INVALID_SPAN) == ()
    assert context_of(INVALID_SPAN) is None


@pytest.mark.parametrize(
    "malformed",
    [
        "",
        "00",
        SAMPLED[:-1],
        SAMPLED.replace("0af7", "xyz7"),
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "ff" + SAMPLED[2:],
        SAMPLED + "-more",
    ],
)
def test_a_malformed_parent_is_no_parent(malformed):
    assert context_from(malformed) is None


@given(st.text(max_size=80), st.text(max_size=40))
def test_no_text_of_a_peer_raises(traceparent, tracestate):
    context_from(traceparent, tracestate)
    context_from(SAMPLED, tracestate)


def test_metadata_may_be_pairs_or_headers_or_nothing():
    pairs = (("user-agent", "x"), ("trace-bin", b"\x00"), ("traceparent", SAMPLED))
    assert span_context(context_from_metadata(pairs)).span_id == 0xB7AD6B7169203331
    assert span_context(context_from_metadata({"traceparent": SAMPLED})).span_id == 0xB7AD6B7169203331
    assert context_from_metadata(None) is None
    assert context_from_metadata([("user-agent", "x")]) is None
    assert context_from_metadata([("traceparent", SAMPLED.encode())]) is None


def test_links_name_each_sampled_span_once():
    other = SAMPLED.replace("b7ad", "c7ad")
    links = links_to([SAMPLED, "", other, SAMPLED, "nonsense"])
    assert [link.context.span_id for link in links] == [0xB7AD6B7169203331, 0xC7AD6B7169203331]


def test_links_are_capped():
    many = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 2 * MAX_LINKS)]
    links = links_to(many)
    assert len(links) == MAX_LINKS
    assert links[-1].context.span_id == MAX_LINKS
