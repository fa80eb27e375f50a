"""Trace context as it crosses a process boundary: W3C `traceparent` and `tracestate`."""

from collections.abc import Iterable, Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

# What an SDK keeps by default; more would be cut there, after the cost of making them.
MAX_LINKS = 128

_PROPAGATOR = TraceContextTextMapPropagator()


def _format(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def traceparent_of(span: Span) -> str:
    """The span's `traceparent` for a message, 55 characters; "" when it is not sampled."""
    context = span.get_span_context()
    return _format(context) if context.is_valid and context.trace_flags.sampled else ""


def tracestate_of(span: Span) -> str:
    """The span's `tracestate` for a message; "" when it has none or is not sampled."""
    context = span.get_span_context()
    return context.trace_state.to_header() if context.is_valid and context.trace_flags.sampled else ""


def trace_id_of(span: Span) -> str:
    """The span's trace id, 32 hex digits; "" when it is not sampled."""
    context = span.get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid and context.trace_flags.sampled else ""


def metadata_of(span: Span) -> tuple[tuple[str, str], ...]:
    """Metadata for a call that continues the trace; () when there is none.

    Unlike a message it also says "not sampled", so that the callee does not begin a trace of its own.
    """
    context = span.get_span_context()
    if not context.is_valid:
        return ()
    pairs = [("traceparent", _format(context))]
    if context.trace_state:
        pairs.append(("tracestate", context.trace_state.to_header()))
    return tuple(pairs)


def context_from(traceparent: str, tracestate: str = "") -> Context | None:
    """The remote parent that a message or a call names; None when it is empty or malformed."""
    if not traceparent:
        return None
    carrier = {"traceparent": traceparent}
    if tracestate:
        carrier["tracestate"] = tracestate
    context = _PROPAGATOR.extract(carrier, Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def context_from_metadata(
    metadata: Iterable[tuple[str, str | bytes]] | Mapping[str, str] | None,
) -> Context | None:
    """The remote parent that a call's metadata or headers name (lower-case keys); None without one."""
    if not metadata:
        return None
    pairs = metadata.items() if isinstance(metadata, Mapping) else metadata
    found = {key: value for key, value in pairs if key in ("traceparent", "tracestate")}
    texts = {key: value for key, value in found.items() if isinstance(value, str)}
    return context_from(texts.get("traceparent", ""), texts.get("tracestate", ""))


def context_of(span: Span) -> Context | None:
    """A context whose current span is `span`, for children in this process; None when it has no trace."""
    return trace.set_span_in_context(span, Context()) if span.get_span_context().is_valid else None


def links_to(traceparents: Iterable[str]) -> list[Link]:
    """Links to the sampled among these spans, each once and MAX_LINKS at most."""
    links: list[Link] = []
    for traceparent in dict.fromkeys(traceparents):
        if len(links) == MAX_LINKS:
            break
        context = context_from(traceparent)
        if context is not None:
            links.append(Link(trace.get_current_span(context).get_span_context()))
    return links
