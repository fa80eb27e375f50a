import subprocess
import sys

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN, SpanKind, StatusCode

from outrider.telemetry import (
    NO_TRACING,
    Attr,
    BadTracingVariable,
    SpanName,
    configure_tracing,
    context_from,
    context_of,
    links_to,
    mark_failed,
    traceparent_of,
    tracing_to,
)
from tests.support.collector import Collector

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = REMOTE[:-2] + "00"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter):
    tracing = tracing_to(SimpleSpanProcessor(exporter), "outrider-scheduler", "one")
    yield tracing
    tracing.shutdown()


def test_a_round_is_a_child_of_its_session(tracing, exporter):
    session = tracing.start_root(SpanName.SESSION, attributes={Attr.SEED: 7})
    tracing.start_span(SpanName.ROUND, parent=context_of(session), attributes={Attr.K: 4}).end()
    session.end()
    inner, outer = exporter.get_finished_spans()
    assert inner.parent.span_id == outer.context.span_id
    assert outer.parent is None
    assert dict(inner.attributes) == {"outrider.k": 4}
    assert (inner.name, outer.name) == ("outrider.round", "outrider.session")


def test_two_roots_are_two_traces(tracing, exporter):
    with_current = tracing.start_root(SpanName.SESSION)
    tracing.start_root(SpanName.SESSION).end()
    with_current.end()
    first, second = exporter.get_finished_spans()
    assert first.context.trace_id != second.context.trace_id


def test_a_recorded_span_has_the_times_that_were_measured(tracing, exporter):
    span = tracing.record_span(
        SpanName.CHECK,
        1_700_000_000_000_000_000,
        1_700_000_000_002_000_000,
        parent=context_from(REMOTE),
        kind=SpanKind.SERVER,
        attributes={Attr.QUEUE_US: 30, Attr.COMPUTE_US: 1970},
        links=links_to([REMOTE]),
    )
    (recorded,) = exporter.get_finished_spans()
    assert recorded.end_time - recorded.start_time == 2_000_000
    assert recorded.kind is SpanKind.SERVER
    assert recorded.parent.is_remote
    assert f"{recorded.context.trace_id:032x}" == REMOTE[3:35]
    assert recorded.links[0].context.span_id == recorded.parent.span_id
    assert recorded.status.status_code is StatusCode.UNSET
    assert traceparent_of(span).startswith(REMOTE[:35])


def test_a_failure_has_a_type(tracing, exporter):
    tracing.record_span(SpanName.VERIFY, 1, 2, parent=context_from(REMOTE), error_type="STALE")
    session = tracing.start_root(SpanName.SESSION)
    mark_failed(session, "NO_EQUAL_REPLICA")
    session.end()
    for span, reason in zip(exporter.get_finished_spans(), ("STALE", "NO_EQUAL_REPLICA"), strict=True):
        assert span.attributes["error.type"] == reason
        assert span.status.status_code is StatusCode.ERROR


def test_without_a_sampled_parent_nothing_is_recorded(tracing, exporter):
    assert tracing.start_span(SpanName.ROUND, parent=None) is INVALID_SPAN
    tracing.record_span(SpanName.PROPOSE, 1, 2, parent=None)
    tracing.record_span(SpanName.PROPOSE, 1, 2, parent=context_from(UNSAMPLED))
    assert exporter.get_finished_spans() == ()


def test_when_off_nothing_is_recorded_and_nothing_fails():
    assert not NO_TRACING.enabled
    assert NO_TRACING.start_root(SpanName.SESSION) is INVALID_SPAN
    assert NO_TRACING.start_span(SpanName.ROUND, parent=context_from(REMOTE)) is INVALID_SPAN
    span = NO_TRACING.record_span(SpanName.VERIFY, 1, 2, parent=context_from(REMOTE), error_type="STALE")
    assert traceparent_of(span) == ""
    NO_TRACING.shutdown()


def test_after_a_shutdown_spans_are_no_longer_made(tracing, exporter):
    tracing.shutdown()
    assert not tracing.enabled
    assert tracing.start_root(SpanName.SESSION) is INVALID_SPAN


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    ],
    ids=["unset", "none", "disabled", "empty"],
)
def test_it_is_off_unless_it_is_asked_for(variables, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert not configure_tracing("test", "1").enabled


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "set it to 'otlp' or 'none'"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "over 'grpc' only"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "over 'grpc' only"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(name, value, fix, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    with pytest.raises(BadTracingVariable, match=f"{name} is '{value}': .*{fix}"):
        configure_tracing("test", "1")


def test_spans_reach_a_real_collector(monkeypatch):
    with Collector() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        tracing = configure_tracing("outrider-validator", "127.0.0.1:50052")
        assert tracing.enabled
        tracing.record_span(
            SpanName.CHECK,
            1_700_000_000_000_000_000,
            1_700_000_000_002_000_000,
            parent=context_from(REMOTE),
            kind=SpanKind.SERVER,
            attributes={Attr.ROWS: 8, Attr.MODEL_VERSION: "v1", Attr.DISCARDED: False},
            links=links_to([REMOTE]),
            error_type="STALE",
        )
        (span,) = collector.wait_for(bool)
        tracing.shutdown()
    assert span.name == "validator.verify"
    assert span.service == "outrider-validator"
    assert span.resource["service.instance.id"] == "127.0.0.1:50052"
    assert span.resource["deployment.environment.name"] == "test"
    assert f"00-{span.trace_id}-{span.parent_id}-01" == REMOTE
    assert span.links == ((span.trace_id, span.parent_id),)
    assert (span.kind, span.failed, span.end_ns - span.start_ns) == ("SERVER", True, 2_000_000)
    assert span.attributes == {
        "outrider.rows": 8,
        "outrider.model_version": "v1",
        "outrider.discarded": False,
        "error.type": "STALE",
    }


def test_a_shutdown_delivers_what_still_waits(monkeypatch):
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
        tracing = configure_tracing("outrider-draft", "1")
        tracing.start_root(SpanName.SESSION).end()
        tracing.shutdown()
        assert [span.name for span in collector.spans] == ["outrider.session"]


def test_the_operator_names_the_service(monkeypatch):
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        tracing = configure_tracing("outrider-draft", "1")
        tracing.start_root(SpanName.SESSION).end()
        tracing.shutdown()
        assert collector.spans[0].service == "mine"


def test_the_sampler_comes_from_the_environment(monkeypatch, exporter):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    tracing = tracing_to(SimpleSpanProcessor(exporter), "test", "1")
    assert traceparent_of(tracing.start_root(SpanName.SESSION)) == ""
    # The parent's decision comes first.
    assert tracing.start_root(SpanName.SESSION, parent=context_from(REMOTE)).is_recording()
    tracing.shutdown()


def test_those_who_do_not_trace_do_not_load_the_exporter():
    probe = (
        "import sys; from outrider.telemetry import configure_tracing; configure_tracing('x', '1');"
        "sys.exit('opentelemetry.exporter.otlp' in ' '.join(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_a_dead_collector_does_not_hold_up_the_end(monkeypatch):
    probe = (
        "from outrider.telemetry import configure_tracing; tracing = configure_tracing('x', '1');"
        "tracing.start_root('outrider.session').end(); tracing.shutdown(timeout_s=0.1); print('over')"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    run = subprocess.run(
        [sys.executable, "-c", probe], check=True, capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "over\n"
