"""What a process tells of itself: spans, metrics, logs, and the lists of their names."""

from outrider.telemetry.logs import BadLogLevel, bind_span, configure_logging, get_logger
from outrider.telemetry.metric import In
from outrider.telemetry.metrics import Metrics, Reading
from outrider.telemetry.metrics_server import MetricsServer
from outrider.telemetry.names import Attr, GenAi, General, SpanName, chat_span_name
from outrider.telemetry.propagation import (
    MAX_LINKS,
    context_from,
    context_from_metadata,
    context_of,
    links_to,
    metadata_of,
    trace_id_of,
    traceparent_of,
    tracestate_of,
)
from outrider.telemetry.stream_meter import StreamMeter
from outrider.telemetry.tracing import (
    BadTracingVariable,
    Tracing,
    configure_tracing,
    mark_failed,
    tracing_to,
)

# Handed out where nobody asked for traces.
NO_TRACING = Tracing(None)

__all__ = [
    "MAX_LINKS",
    "NO_TRACING",
    "Attr",
    "BadLogLevel",
    "BadTracingVariable",
    "GenAi",
    "General",
    "In",
    "Metrics",
    "MetricsServer",
    "Reading",
    "SpanName",
    "StreamMeter",
    "Tracing",
    "bind_span",
    "chat_span_name",
    "configure_logging",
    "configure_tracing",
    "context_from",
    "context_from_metadata",
    "context_of",
    "get_logger",
    "links_to",
    "mark_failed",
    "metadata_of",
    "trace_id_of",
    "traceparent_of",
    "tracestate_of",
    "tracing_to",
]
