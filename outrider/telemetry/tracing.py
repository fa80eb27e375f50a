"""Spans by hand, exported over OTLP when the standard OTEL_* variables say so.

Nothing here is ambient: a span's parent is always an argument, because one task serves many sessions and one
forward serves many rounds. A span is ended in a `finally`, or recorded after the fact from measured times.
"""

import os
import threading
from collections.abc import Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.environment_variables import OTEL_TRACES_EXPORTER
from opentelemetry.sdk import environment_variables as env
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from outrider.telemetry.names import General

Attributes = Mapping[str, AttributeValue]

# An explicit empty context: None would mean "whatever is current in this thread".
_NO_PARENT = Context()


class BadTracingVariable(ValueError):
    """An OTEL_* variable asks for something that is not offered."""


class Tracing:
    """A process's tracer, or nothing: with tracing off each call returns at once and records nothing."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer("outrider")

    @property
    def enabled(self) -> bool:
        """Whether spans are recorded at all; lets a caller skip the making of attributes."""
        return self._tracer is not None

    def start_root(
        self,
        name: str,
        *,
        parent: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        links: Sequence[Link] = (),
        start_ns: int | None = None,
    ) -> Span:
        """Begin a trace here, or continue the one that `parent` names. `start_ns` is wall time since 1970."""
        if self._tracer is None:
            return INVALID_SPAN
        context = _NO_PARENT if parent is None else parent
        return self._tracer.start_span(
            name, context, kind=kind, attributes=attributes, links=links, start_time=start_ns
        )

    def start_span(
        self,
        name: str,
        *,
        parent: Context | None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        links: Sequence[Link] = (),
        start_ns: int | None = None,
    ) -> Span:
        """Begin a child of `parent`. Without a parent nothing is recorded: its caller was not sampled."""
        if self._tracer is None or parent is None:
            return INVALID_SPAN
        return self.start_root(
            name, parent=parent, kind=kind, attributes=attributes, links=links, start_ns=start_ns
        )

    def record_span(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        parent: Context | None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        links: Sequence[Link] = (),
        error_type: str = "",
    ) -> Span:
        """Record a child that is already over, from the wall times that another thread measured."""
        span = self.start_span(
            name, parent=parent, kind=kind, attributes=attributes, links=links, start_ns=start_ns
        )
        if error_type:
            mark_failed(span, error_type)
        span.end(end_ns)
        return span

    def shutdown(self, timeout_s: float = 5.0) -> None:
        """Export what waits and stop, for good. It blocks up to `timeout_s`: call it off the event loop.

        A collector that does not answer costs the spans that wait, never the end of the process.
        """
        provider, self._provider, self._tracer = self._provider, None, None
        if provider is not None:
            last_export = threading.Thread(target=provider.shutdown, name="tracing-shutdown", daemon=True)
            last_export.start()
            last_export.join(timeout_s)


def mark_failed(span: Span, error_type: str) -> None:
    """Give the span the status "error" and its `error.type`: one of few reasons, never a text with data."""
    span.set_attribute(General.ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR))


def _wanted_exporter(environ: Mapping[str, str]) -> str:
    """What OTEL_TRACES_EXPORTER asks for; "" when tracing is off."""
    if environ.get(env.OTEL_SDK_DISABLED, "").strip().lower() == "true":
        return ""
    exporter = environ.get(OTEL_TRACES_EXPORTER, "").strip().lower()
    if not exporter:
        endpoints = (env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, env.OTEL_EXPORTER_OTLP_ENDPOINT)
        exporter = "otlp" if any(environ.get(name) for name in endpoints) else "none"
    if exporter not in ("otlp", "none"):
        raise BadTracingVariable(
            f"{OTEL_TRACES_EXPORTER} is {exporter!r}: set it to 'otlp' or 'none', or unset it"
        )
    return "" if exporter == "none" else exporter


def _check_protocol(environ: Mapping[str, str]) -> None:
    for name in (env.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, env.OTEL_EXPORTER_OTLP_PROTOCOL):
        protocol = environ.get(name, "").strip()
        if protocol not in ("", "grpc"):
            raise BadTracingVariable(
                f"{name} is {protocol!r}: traces are exported over 'grpc' only; set it so, or unset it"
            )
        if protocol:
            return


def _resource(service_name: str, instance_id: str) -> Resource:
    """Who emits; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES overrule what the process says of itself."""
    own = {
        "service.name": service_name,
        "service.namespace": "outrider",
        "service.instance.id": instance_id,
    }
    return Resource.create(own).merge(OTELResourceDetector().detect())


def tracing_to(processor: SpanProcessor, service_name: str, instance_id: str) -> Tracing:
    """Tracing into a given processor; OTEL_TRACES_SAMPLER chooses the sampler (parent-based by default)."""
    provider = TracerProvider(resource=_resource(service_name, instance_id))
    provider.add_span_processor(processor)
    return Tracing(provider)


def configure_tracing(service_name: str, instance_id: str) -> Tracing:
    """Tracing as the OTEL_* variables ask for it; off when neither an endpoint nor an exporter is named.

    Endpoint, headers, TLS, sampler (OTEL_TRACES_SAMPLER), batch sizes (OTEL_BSP_*) and limits are read by the
    SDK itself. Raises BadTracingVariable for an exporter or a protocol that is not offered.
    """
    if not _wanted_exporter(os.environ):
        return Tracing(None)
    _check_protocol(os.environ)
    # Importing the exporter takes a while, so only those who trace pay for it.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return tracing_to(BatchSpanProcessor(OTLPSpanExporter()), service_name, instance_id)
