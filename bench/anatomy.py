"""Where the time of a round goes, and what was accepted at which position: read from traces."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from bench.sink import Span
from outrider.telemetry import Attr, SpanName

SLICES = ("draft", "draft hand-over", "verify", "verify hand-over", "rest")
"""Computing on both sides, what lies between the scheduler and that, and all that is neither."""


def anatomy(spans: Sequence[Span], trace_ids: Iterable[str]) -> dict[str, Any] | None:
    """Figures over the rounds of some traces, each session's first round, the prompt's, left out.

    Returns:
        `slices` (share of the time per name), `round_s` (median), `accepted_by_position` and
        `drafted_by_position` (counts, from the first drafted token on), `bytes_per_round` (median, both
        directions and both workers; None when the trace does not tell), `num_rounds`. None without rounds.
    """
    wanted = set(trace_ids)
    mine = [span for span in spans if span.trace_id in wanted]
    children: dict[str, list[Span]] = defaultdict(list)
    for span in mine:
        children[span.parent_id].append(span)
    periods: list[tuple[Span, float]] = []
    for session in (span for span in mine if span.name == SpanName.SESSION):
        periods += _periods([span for span in children[session.span_id] if span.name == SpanName.ROUND])
    if not periods:
        return None
    totals = dict.fromkeys(SLICES, 0.0)
    for round_, period_s in periods:
        for name, seconds in _slices(round_, period_s, children).items():
            totals[name] += seconds
    rounds = [round_ for round_, _ in periods]
    sizes = [size for round_ in rounds if (size := _bytes(round_)) is not None]
    whole = sum(totals.values())
    return {
        "slices": {name: seconds / whole for name, seconds in totals.items()},
        "round_s": statistics.median(period_s for _, period_s in periods),
        "bytes_per_round": statistics.median(sizes) if sizes else None,
        "accepted_by_position": _by_position(rounds, Attr.ACCEPTED),
        "drafted_by_position": _by_position(rounds, Attr.DRAFTED),
        "num_rounds": len(rounds),
    }


def _periods(rounds: list[Span]) -> list[tuple[Span, float]]:
    """Rounds but the first, each with the seconds to the next one's start; the last with its own."""
    ordered = sorted(rounds, key=lambda span: span.start_ns)
    starts = [span.start_ns for span in ordered[1:]] + [span.end_ns for span in ordered[-1:]]
    return [
        (span, (end_ns - span.start_ns) / 1e9)
        for number, (span, end_ns) in enumerate(zip(ordered, starts, strict=True))
        if number > 0
    ]


def _slices(round_: Span, period_s: float, children: dict[str, list[Span]]) -> dict[str, float]:
    found = dict.fromkeys(SLICES, 0.0)
    for name, kind in (("draft", SpanName.DRAFT), ("verify", SpanName.VERIFY)):
        for call in (span for span in children[round_.span_id] if span.name == kind):
            computed_s = sum(span.attributes.get(Attr.COMPUTE_US, 0) / 1e6 for span in children[call.span_id])
            computed_s = min(computed_s, call.duration_s)
            found[name] += computed_s
            found[f"{name} hand-over"] += call.duration_s - computed_s
    found["rest"] = max(0.0, period_s - sum(found.values()))
    return found


def _bytes(round_: Span) -> int | None:
    sizes = [round_.attributes.get(key) for key in (Attr.SENT_BYTES, Attr.RECEIVED_BYTES)]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _by_position(rounds: Sequence[Span], key: Attr) -> list[int]:
    """How many rounds reached each position: a chain of 3 counts at positions 1, 2 and 3."""
    lengths = [int(span.attributes.get(key, 0)) for span in rounds]
    return [sum(length > position for length in lengths) for position in range(max(lengths, default=0))]
