"""One trace as the collector got it, asked for by names and by who is below whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from outrider.telemetry import Attr, SpanName, chat_span_name
from tests.support.collector import Collector, ReceivedSpan

SERVED = {SpanName.DRAFT: SpanName.PROPOSE, SpanName.VERIFY: SpanName.CHECK}
"""A call's span in the scheduler, and the one below it in the worker."""

CALLER = "cd" * 8
"""Id of the span that requests of a test come from."""


def traceparent(trace_id: str, *, sampled: bool = True) -> tuple[str, str]:
    """The metadata of a caller that has a trace of its own."""
    return "traceparent", f"00-{trace_id}-{CALLER}-{int(sampled):02x}"


@dataclass(frozen=True)
class Trace:
    """The spans of one trace id."""

    spans: tuple[ReceivedSpan, ...]

    def named(self, name: str) -> list[ReceivedSpan]:
        """Those of one name, in the order of their start."""
        return _in_order(span for span in self.spans if span.name == name)

    def one(self, name: str) -> ReceivedSpan:
        """The only one of that name."""
        (span,) = self.named(name)
        return span

    def below(self, span: ReceivedSpan) -> list[ReceivedSpan]:
        """The children of a span, in the order of their start."""
        return _in_order(each for each in self.spans if each.parent_id == span.span_id)

    @property
    def ended(self) -> bool:
        """Whether the spans of request and session have come, each the last of its process."""
        names = {span.name for span in self.spans}
        return SpanName.SESSION in names and any(name.startswith(chat_span_name("")) for name in names)

    @property
    def whole(self) -> bool:
        """Whether beside them has come what the workers did for every round."""
        return self.ended and all(self.below(call) for _, call in self.answered)

    @property
    def answered(self) -> list[tuple[ReceivedSpan, ReceivedSpan]]:
        """Each call to a worker that was answered in time, behind its round."""
        return [
            (round_, call)
            for round_ in self.named(SpanName.ROUND)
            for call in self.below(round_)
            if call.name == SpanName.VERIFY
            or (call.attributes[Attr.SOURCE] == "model" and round_.attributes[Attr.DRAFT_STATUS] == "ok")
        ]

    @property
    def work(self) -> list[ReceivedSpan]:
        """What the workers did for those calls."""
        return [self.below(call)[0] for _, call in self.answered]


def count(span: ReceivedSpan, key: str) -> int:
    """An attribute that is a whole number."""
    value = span.attributes[key]
    assert type(value) is int, f"{key} of {span.name} is {value!r}"
    return value


async def trace_of(collector: Collector, trace_id: str, *, whole: bool = True) -> Trace:
    """The trace, once it is whole; with `whole` off once it has ended, for a request that was cut short."""

    def found(spans: list[ReceivedSpan]) -> Trace:
        return Trace(tuple(span for span in spans if span.trace_id == trace_id))

    def complete(spans: list[ReceivedSpan]) -> bool:
        trace = found(spans)
        return trace.whole if whole else trace.ended

    return found(await asyncio.to_thread(collector.wait_for, complete))


def _in_order(spans: Iterable[ReceivedSpan]) -> list[ReceivedSpan]:
    return sorted(spans, key=lambda span: (span.start_ns, span.end_ns))
