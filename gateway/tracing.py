"""What the gateway's span says of a request; never its text."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from outrider.telemetry import Attr, GenAi
from outrider.telemetry.names import CHAT_OPERATION, PROVIDER
from outrider.wire import scheduler
from outrider.wire.inference import Final

MAX_ATTRIBUTE_INTEGER = 2**63 - 1
"""OTLP knows signed integers only; a seed may be larger, and is then given as text."""


def span_to_pass_on(span: Span, parent: Context | None) -> Span:
    """The span whose trace goes on: our own, or the client's where nothing is recorded here."""
    if span.get_span_context().is_valid or parent is None:
        return span
    return trace.get_current_span(parent)


def describe_request(span: Span, model: str, asked: scheduler.GenerateRequest) -> None:
    """Write what was asked for, once it is known to be valid."""
    if not span.is_recording():
        return
    sampling = asked.sampling
    seed: int | str = asked.seed if asked.seed <= MAX_ATTRIBUTE_INTEGER else str(asked.seed)
    span.set_attributes(
        {
            GenAi.OPERATION_NAME: CHAT_OPERATION,
            GenAi.PROVIDER_NAME: PROVIDER,
            GenAi.REQUEST_MODEL: model,
            GenAi.REQUEST_MAX_TOKENS: sampling.max_tokens,
            GenAi.REQUEST_TEMPERATURE: sampling.temperature,
            GenAi.REQUEST_TOP_P: sampling.top_p,
            GenAi.REQUEST_TOP_K: sampling.top_k,
            GenAi.REQUEST_FREQUENCY_PENALTY: sampling.frequency_penalty,
            GenAi.REQUEST_PRESENCE_PENALTY: sampling.presence_penalty,
            GenAi.REQUEST_SEED: seed,
        }
    )


def describe_response(span: Span, model: str, final: Final) -> None:
    """Write how the answer came about."""
    if not span.is_recording():
        return
    span.set_attributes(
        {
            GenAi.RESPONSE_MODEL: model,
            GenAi.RESPONSE_FINISH_REASONS: [final.finish_reason.value],
            GenAi.USAGE_INPUT_TOKENS: final.prompt_tokens,
            GenAi.USAGE_OUTPUT_TOKENS: final.completion_tokens,
            Attr.NUMERICS_ID: final.numerics_id,
            Attr.ROUNDS: final.counters.rounds,
            Attr.DRAFTED: final.counters.drafted,
            Attr.ACCEPTED: final.counters.accepted,
            Attr.REOPENS: final.counters.reopens,
        }
    )
