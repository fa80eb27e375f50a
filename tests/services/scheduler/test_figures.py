from dataclasses import replace

import pytest

from outrider.wire.generation import DraftSource
from outrider.wire.state import WorkerStatus
from outrider.wire.worker import Exactness, ModelInfo
from services.scheduler.figures import ALIASES, DESCRIPTIONS, NAMES, Figures
from tests.support.alerting import Clock, worker

INFO = ModelInfo("m", "w", "t", 10, 10, "n", Exactness.BITWISE, "float32", "cpu", (), "v", b"i" * 16)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def figures(clock):
    return Figures(clock)


def test_without_events_nothing_is_known_but_that_nothing_was_committed(figures):
    assert figures.snapshot() == {"throughput": 0.0}


def test_throughput_is_tokens_over_the_time_that_is_looked_back_on(figures, clock):
    for _ in range(10):
        clock.now += 1
        figures.committed(7)
    assert figures.snapshot()["throughput"] == 7.0
    clock.now += 60
    assert figures.snapshot()["throughput"] == 0.0


def test_latencies_are_means_in_milliseconds(figures, clock):
    for seconds in (0.1, 0.3):
        figures.verified(seconds)
        figures.proposed(seconds / 10)
    known = figures.snapshot()
    assert known["validation_latency"] == pytest.approx(200)
    assert known["draft_latency"] == known["draft_model_latency"] == pytest.approx(20)
    clock.now += 60
    assert not {"validation_latency", "draft_latency", "draft_model_latency"} & figures.snapshot().keys()


def test_acceptance_is_of_all_sources_and_that_of_drafts_of_the_worst_pair(figures):
    figures.judged(DraftSource.NGRAM, "code", "", 100, 100)
    figures.judged(DraftSource.MODEL, "code", "v", 100, 80)
    figures.judged(DraftSource.MODEL, "prose", "v", 100, 30)
    known = figures.snapshot()
    assert known["acceptance_rate"] == known["speculative_acceptance_rate"] == pytest.approx(0.7)
    assert known["draft_acceptance_rate"] == pytest.approx(0.3)
    assert "acceptance_against_baseline" not in known
    assert {each.workload for each in figures.standings()} == {"code", "prose"}


def test_acceptance_against_the_baseline(figures, clock):
    for acceptance in (80, 40):
        for _ in range(60):
            clock.now += 10
            figures.judged(DraftSource.MODEL, "code", "v", 100, acceptance)
    # The newest 31 buckets are watched, so that 29 of the second stretch are in the baseline with the first.
    assert figures.snapshot()["acceptance_against_baseline"] == pytest.approx(0.4 / 0.6697, abs=1e-3)


def test_a_handful_of_tokens_is_no_acceptance_rate(figures):
    figures.judged(DraftSource.NGRAM, "", "", 19, 0)
    assert "acceptance_rate" not in figures.snapshot()
    figures.judged(DraftSource.NGRAM, "", "", 1, 0)
    assert figures.snapshot()["acceptance_rate"] == 0.0


def test_figures_of_workers(figures):
    on_gpu = replace(worker(utilization=0.3, memory_bytes=6_000_000, memory_limit_bytes=8_000_000))
    on_gpu = replace(on_gpu, info=replace(INFO, device="cuda:0"))
    figures.loads(
        validators=[
            worker(utilization=0.5, memory_bytes=1_000_000, memory_limit_bytes=2_000_000),
            worker(utilization=1.0),
            worker(WorkerStatus.UNREACHABLE, utilization=0.0, memory_bytes=9, memory_limit_bytes=9),
        ],
        drafts=[on_gpu, worker(memory_bytes=500_000)],
    )
    known = figures.snapshot()
    assert known["main_model_utilization"] == 0.75
    assert known["gpu_utilization"] == pytest.approx(0.3)
    assert known["memory_footprint"] == 7.5
    assert known["memory_share"] == 0.75
    figures.loads(validators=[], drafts=[])
    assert figures.snapshot() == {"throughput": 0.0}


def test_each_figure_that_a_rule_can_name_is_told_once_it_is_known(figures, clock):
    test_acceptance_against_the_baseline(figures, clock)
    figures.verified(1)
    figures.proposed(1)
    told = worker(utilization=1.0, memory_bytes=1, memory_limit_bytes=1)
    figures.loads(validators=[replace(told, info=replace(INFO, device="cuda"))], drafts=[])
    assert figures.snapshot().keys() == NAMES
    assert set(ALIASES.values()) <= DESCRIPTIONS.keys()
