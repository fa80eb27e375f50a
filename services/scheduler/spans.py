"""The spans of a session: outrider.session over outrider.round over outrider.draft and outrider.verify."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.trace import Span, SpanKind

from outrider.rpc.errors import OutriderError, Unavailable
from outrider.telemetry import Attr, SpanName, Tracing, context_of, mark_failed, traceparent_of, tracestate_of
from outrider.wire.worker import Transfer

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from outrider.sampling.acceptance import FinishReason
    from outrider.wire.generation import Counters, DraftSource
    from outrider.wire.scheduler import GenerateRequest
    from outrider.wire.validator import Verdict
    from outrider.wire.worker import ModelInfo
    from services.scheduler.metering import Carried

RULE = "exact"


class TraceHeaders(NamedTuple):
    """What an event header carries; both empty when nothing is sampled."""

    traceparent: str
    tracestate: str


class SessionSpan:
    """The span of one session; its parent is the caller's, if it sent one."""

    def __init__(
        self, tracing: Tracing, parent: Context | None, session: bytes, request: GenerateRequest
    ) -> None:
        self._tracing = tracing
        self._span = tracing.start_root(
            SpanName.SESSION,
            parent=parent,
            kind=SpanKind.SERVER,
            attributes={
                Attr.SESSION_ID: session.hex(),
                # An attribute is a signed 64-bit integer, and a seed is not.
                Attr.SEED: str(request.seed),
                Attr.RULE: RULE,
                Attr.PROMPT_TOKENS: len(request.prompt),
            },
        )
        self._failed = False

    def begin_round(self, number: int, base_length: int) -> RoundSpan:
        """Begin the span of one round."""
        return RoundSpan(self._tracing, self._span, number, base_length)

    def failed(self, reason: str) -> None:
        """The session ends with an error."""
        self._failed = True
        mark_failed(self._span, reason)

    def end(self, reason: FinishReason | None, counters: Counters, info: ModelInfo) -> None:
        """End it with the final counters; without a reason and a failure the caller went away."""
        if self._span.is_recording():
            without = "error" if self._failed else "cancelled"
            self._span.set_attributes(
                {
                    Attr.FINISH_REASON: reason.name.lower() if reason else without,
                    Attr.ROUNDS: counters.rounds,
                    Attr.DRAFTED: counters.drafted,
                    Attr.ACCEPTED: counters.accepted,
                    Attr.COMMITTED: counters.committed,
                    Attr.REOPENS: counters.reopens,
                    Attr.NUMERICS_ID: info.numerics_id,
                }
            )
        self._span.end()


class RoundSpan:
    """The span of one round, with a client span for each call to a worker below it."""

    def __init__(self, tracing: Tracing, session: Span, number: int, base_length: int) -> None:
        self._tracing = tracing
        self._span = tracing.start_span(
            SpanName.ROUND,
            parent=context_of(session),
            attributes={Attr.ROUND: number, Attr.BASE_LENGTH: base_length},
        )
        self._applied = False
        self._transfer = Transfer()

    @contextmanager
    def drafting(self, source: DraftSource, k: int, w: int, carried: Carried) -> Iterator[TraceHeaders]:
        """Around a source's `propose`; yields the headers for a remote one."""
        attributes: dict[str, str | int] = {Attr.SOURCE: source.name.lower(), Attr.K: k, Attr.W: w}
        with self._child(SpanName.DRAFT, attributes, carried) as headers:
            yield headers

    @contextmanager
    def verifying(self, address: str, carried: Carried) -> Iterator[TraceHeaders]:
        """Around the target's pass."""
        with self._child(SpanName.VERIFY, {Attr.WORKER: address}, carried) as headers:
            yield headers

    def drafted(self, k: int, w: int, draft_status: str) -> None:
        """What was asked for, and why a source left the round without."""
        self._span.set_attributes({Attr.K: k, Attr.W: w, Attr.DRAFT_STATUS: draft_status or "ok"})

    def committed(self, source: DraftSource, epoch: int, verdict: Verdict) -> None:
        """The verdict was applied."""
        self._applied = True
        self._span.set_attributes(
            {
                Attr.SOURCE: source.name.lower(),
                Attr.EPOCH: epoch,
                Attr.DRAFTED: verdict.drafted,
                Attr.ACCEPTED: verdict.accepted,
                Attr.COMMITTED: len(verdict.committed),
                Attr.DISCARDED: False,
            }
        )

    def end(self) -> None:
        """End it; without a verdict its result was dropped."""
        if not self._applied:
            self._span.set_attribute(Attr.DISCARDED, value=True)
        if self._span.is_recording():
            self._span.set_attributes(_attributes_of(self._transfer))
        self._span.end()

    @contextmanager
    def _child(
        self, name: SpanName, attributes: dict[str, str | int], carried: Carried
    ) -> Iterator[TraceHeaders]:
        span = self._tracing.start_span(
            name, parent=context_of(self._span), kind=SpanKind.CLIENT, attributes=attributes
        )
        before = carried.total
        try:
            yield TraceHeaders(traceparent_of(span), tracestate_of(span))
        except Exception as error:
            mark_failed(span, error.reason if isinstance(error, OutriderError) else Unavailable.reason)
            raise
        finally:
            if span.is_recording():
                transfer = carried.total - before
                self._transfer += transfer
                span.set_attributes(_attributes_of(transfer))
            span.end()


def _attributes_of(transfer: Transfer) -> dict[str, int]:
    return {
        Attr.SENT_BYTES: transfer.sent_bytes,
        Attr.RECEIVED_BYTES: transfer.received_bytes,
        Attr.ENCODE_US: transfer.encode_ns // 1000,
        Attr.DECODE_US: transfer.decode_ns // 1000,
        Attr.HOPS: transfer.hops,
    }
