"""Spans of rounds and of the forwards that serve them, made on the engine's thread from measured times."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from opentelemetry.trace import Link, Span, SpanKind

from outrider.telemetry import MAX_LINKS, Attr, SpanName, context_from, context_of, mark_failed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.telemetry import Tracing
    from outrider.wire.worker import ModelInfo, Timings
    from outrider.worker.session import Round


def wall_ns(clock_ns: int) -> int:
    """The wall time, in nanoseconds since 1970, of a moment of the monotonic clock."""
    return time.time_ns() - (time.monotonic_ns() - clock_ns)


class Spans:
    """Nothing is made for a round whose caller was not sampled."""

    def __init__(self, tracing: Tracing, round_name: SpanName) -> None:
        self._tracing = tracing
        self._round_name = round_name

    def begin(self, round_: Round, info: ModelInfo) -> None:
        """Start the round's span at its arrival, as a child of the caller's."""
        header = round_.header
        if not self._tracing.enabled or not header.traceparent:
            return
        round_.span = self._tracing.start_span(
            self._round_name,
            parent=context_from(header.traceparent, header.tracestate),
            kind=SpanKind.SERVER,
            start_ns=wall_ns(round_.arrived_ns),
            attributes={
                Attr.SESSION_ID: header.session.hex(),
                Attr.EPOCH: header.epoch,
                Attr.ROUND: header.round,
                Attr.BASE_LENGTH: header.base_length,
                Attr.MODEL_VERSION: info.model_version,
                Attr.NUMERICS_ID: info.numerics_id,
            },
        )

    def answered(self, round_: Round, timings: Timings, attributes: Mapping[str, int], now_ns: int) -> None:
        """End the round's span with what the round came to."""
        if not round_.span.is_recording():
            return
        round_.span.set_attributes(
            {
                Attr.QUEUE_US: timings.queue_us,
                Attr.COMPUTE_US: timings.compute_us,
                Attr.BATCH_SIZE: timings.batch_size,
                Attr.ROWS: timings.rows,
                **attributes,
            }
        )
        round_.span.end(wall_ns(now_ns))

    def discarded(self, round_: Round) -> None:
        """End the span of a round that gets no result."""
        if round_.span.is_recording():
            round_.span.set_attribute(Attr.DISCARDED, True)  # noqa: FBT003  # the value of an attribute
            round_.span.end()

    def failed(self, round_: Round, reason: str) -> None:
        """End the span of a round whose session ends with it."""
        if round_.span.is_recording():
            mark_failed(round_.span, reason)
            round_.span.end()

    def forward(self, rounds: Sequence[Round], rows: int, started_ns: int, ended_ns: int) -> None:
        """Record one forward: a child of the first sampled round that it served, linked to each of them."""
        served: list[Span] = [round_.span for round_ in rounds if round_.span.is_recording()]
        if not served:
            return
        self._tracing.record_span(
            SpanName.FORWARD,
            wall_ns(started_ns),
            wall_ns(ended_ns),
            parent=context_of(served[0]),
            links=[Link(span.get_span_context()) for span in served[:MAX_LINKS]],
            attributes={Attr.BATCH_SIZE: len(rounds), Attr.ROWS: rows},
        )
