import pytest

from outrider.rpc.errors import InvalidArgument
from outrider.wire.generation import DraftSource, Speculation
from services.scheduler.admission import Plan, depth_of_round, plan_of
from services.scheduler.settings import SchedulerSettings
from tests.support.reference_target import model_info

MODEL = Plan(k=4, w=1, source=DraftSource.MODEL)


@pytest.mark.parametrize(
    ("plan", "length", "num_output", "expected"),
    [
        (MODEL, 10, 0, 4),
        (MODEL, 97, 0, 2),
        (MODEL, 99, 0, 0),
        (MODEL, 100, 0, 0),
        (MODEL, 10, 47, 2),
        (MODEL, 10, 49, 0),
        (MODEL, 10, 50, 0),
        (Plan(64, 1, DraftSource.MODEL), 10, 0, 8),
        (Plan(64, 4, DraftSource.MODEL), 10, 0, 5),
    ],
)
def test_c44_the_depth_of_a_round(plan, length, num_output, expected):
    info = model_info(context_length=100, max_depth=8, max_nodes=20)
    assert depth_of_round(plan, info, length=length, num_output=num_output, max_tokens=50) == expected


def test_defaults_fill_what_a_request_leaves_open():
    settings = SchedulerSettings(policy="fixed", max_k=7)
    assert plan_of(Speculation(), settings) == Plan(7, 1, None, min_confidence=0.5)
    assert plan_of(Speculation(k=0), settings) == Plan(0, 1, None)
    assert plan_of(Speculation(), SchedulerSettings(default_source="model")).source is DraftSource.MODEL
    assert plan_of(Speculation(), SchedulerSettings(policy="fixed", max_k=8)).k == 8
    assert plan_of(Speculation(k=2, source=DraftSource.NONE), settings) == Plan(0, 1, DraftSource.NONE)
    assert plan_of(Speculation(), SchedulerSettings(drafts=())).source is DraftSource.NGRAM
    assert plan_of(Speculation(), SchedulerSettings(default_source="none")).k == 0


def test_c64_k_above_the_limit_is_refused_with_the_limit():
    with pytest.raises(InvalidArgument, match=r"speculation\.k is 4294967295, the limit is 8") as raised:
        plan_of(Speculation(k=2**32 - 1), SchedulerSettings(max_k=8))
    assert raised.value.field == "speculation.k"


def test_a_k_that_is_asked_for_is_drafted_unless_confidence_is_asked_for_too():
    settings = SchedulerSettings(min_confidence=0.7)
    assert plan_of(Speculation(k=6), settings).min_confidence == 0
    assert plan_of(Speculation(k=6, min_confidence=0.25), settings).min_confidence == 0.25
    assert plan_of(Speculation(min_confidence=0.0), settings).min_confidence == 0


@pytest.mark.parametrize("value", [-0.1, 1.01, float("nan")])
def test_confidence_is_a_share(value):
    with pytest.raises(InvalidArgument, match=r"speculation\.min_confidence is .*; give 0") as raised:
        plan_of(Speculation(min_confidence=value), SchedulerSettings())
    assert raised.value.field == "speculation.min_confidence"


def test_a_policy_chooses_where_no_shape_is_asked_for():
    settings = SchedulerSettings(max_k=10)
    assert plan_of(Speculation(), settings) == Plan(10, 1, None, min_confidence=0.5, adapts=True)
    bounded = plan_of(Speculation(min_k=3, max_k=8), settings)
    assert (bounded.min_k, bounded.k, bounded.adapts) == (3, 8, True)
    for shaped in (Speculation(k=4), Speculation(w=2), Speculation(min_confidence=0.3)):
        assert not plan_of(shaped, settings).adapts


@pytest.mark.parametrize(
    ("speculation", "message"),
    [
        (Speculation(max_k=11), "max_k is 11, the limit is 10"),
        (Speculation(min_k=11), "min_k is 11, the limit is 10"),
        (Speculation(min_k=5, max_k=3), "min_k is 5, above max_k, 3"),
        (Speculation(k=4, max_k=8), "leave it out, or leave k out"),
        (Speculation(tpot_target_ms=0), "tpot_target_ms is 0; give milliseconds above 0"),
        (Speculation(finish_target_ms=0), "finish_target_ms is 0"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(speculation, message):
    with pytest.raises(InvalidArgument, match=message) as refused:
        plan_of(speculation, SchedulerSettings(max_k=10))
    assert refused.value.field.startswith("speculation.")
