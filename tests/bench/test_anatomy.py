import pytest

from bench.anatomy import SLICES, anatomy
from bench.sink import Span
from outrider.telemetry import Attr, SpanName

MS = 1_000_000


def _span(name, span_id, parent_id, start_ms, end_ms, **attributes):
    return Span(name, "t", span_id, parent_id, int(start_ms * MS), int(end_ms * MS), attributes)


def _round(number, start_ms, drafted, accepted):
    """100 ms: 40 ms of drafting, of which 30 compute, then 55 of verifying, of which 50 compute."""
    name = f"r{number}"
    sizes = {Attr.SENT_BYTES: 100, Attr.RECEIVED_BYTES: 50}
    counts = {Attr.DRAFTED: drafted, Attr.ACCEPTED: accepted}
    return [
        _span(SpanName.ROUND, name, "s", start_ms, start_ms + 100, **counts, **sizes),
        _span(SpanName.DRAFT, f"d{name}", name, start_ms, start_ms + 40),
        _span(SpanName.PROPOSE, f"p{name}", f"d{name}", start_ms, start_ms + 35, **{Attr.COMPUTE_US: 30_000}),
        _span(SpanName.VERIFY, f"v{name}", name, start_ms + 40, start_ms + 95),
        _span(
            SpanName.CHECK, f"c{name}", f"v{name}", start_ms + 41, start_ms + 94, **{Attr.COMPUTE_US: 50_000}
        ),
    ]


@pytest.fixture
def spans():
    session = [_span(SpanName.SESSION, "s", "", 0, 1000)]
    return session + _round(0, 0, 0, 0) + _round(1, 100, 3, 2) + _round(2, 210, 2, 2)


def test_the_time_of_a_round_is_cut_in_five(spans):
    found = anatomy(spans, ["t"])
    # The second round lasts until the third begins.
    assert found["num_rounds"] == 2
    assert found["round_s"] == pytest.approx(0.105)
    assert sum(found["slices"].values()) == pytest.approx(1.0)
    shares = {"draft": 60, "draft hand-over": 20, "verify": 100, "verify hand-over": 10, "rest": 20}
    assert found["slices"] == pytest.approx({name: shares[name] / 210 for name in SLICES})


def test_positions_and_bytes_are_counted(spans):
    found = anatomy(spans, ["t"])
    assert found["drafted_by_position"] == [2, 2, 1]
    assert found["accepted_by_position"] == [2, 2]
    assert found["bytes_per_round"] == 150


def test_other_traces_do_not_count(spans):
    assert anatomy(spans, ["u"]) is None
