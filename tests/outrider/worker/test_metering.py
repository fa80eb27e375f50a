from collections import deque
from types import SimpleNamespace

from prometheus_client import generate_latest

from outrider.runtime.cost import ModelCost
from outrider.runtime.peak import Peak
from outrider.runtime.sequence import Segment, Sequence
from outrider.telemetry import In, Metrics
from outrider.wire.worker import Timings
from outrider.worker.metering import WINDOW, SessionCounts, WorkerMeter
from tests.support.metrics import parsed

COST = ModelCost(num_weights=1000, weight_bytes=2000, num_head_weights=100, head_bytes=200, kv_token_bytes=10)


def scraped(metrics):
    return parsed(generate_latest(metrics.registry).decode())


def metered(cost=COST, peak=None):
    metrics = Metrics(In.VALIDATOR)
    meter = WorkerMeter(metrics)
    meter.serve(SimpleNamespace(model="m"), cost)
    meter.peak = peak
    return metrics, meter


def held(length):
    return Sequence(pages=[0], length=length)


def test_a_forward_counts_what_it_computed_and_read():
    metrics, meter = metered()
    segments = [Segment(held(30), (1, 2, 3), wanted=(1, 2)), Segment(held(5), (4,))]
    meter.forward(segments, rows=4, batch_size=2, took_s=0.5)
    scrape = scraped(metrics)
    assert scrape.total("forward_flops_total") == 2 * (1000 * 4 + 100 * 2)
    assert scrape.total("forward_read_bytes_total") == 2000 + 200 + 10 * 35
    assert scrape.total("forward_duration_seconds_sum") == 0.5
    assert (scrape.total("forward_rows_sum"), scrape.total("forward_batch_size_sum")) == (4, 2)


def test_without_wanted_rows_the_output_layer_is_not_read():
    metrics, meter = metered()
    meter.forward([Segment(held(4), (1, 2, 3, 4))], rows=4, batch_size=1, took_s=0.5)
    assert scraped(metrics).total("forward_read_bytes_total") == 2000 + 40
    assert scraped(metrics).total("forward_flops_total") == 2 * 1000 * 4


def test_utilisation_is_work_over_busy_time_and_peak_of_the_last_forwards():
    metrics, meter = metered(peak=Peak(flops_per_s=84_000.0, read_bytes_per_s=22_000.0))
    wanted = [Segment(held(0), (1, 2, 3, 4), wanted=(3, 2))]
    meter.forward(wanted, rows=400, batch_size=1, took_s=100.0)
    for _ in range(WINDOW):
        meter.forward(wanted, rows=4, batch_size=1, took_s=0.2)
    used = scraped(metrics).values("model_utilization_ratio", "resource")
    assert {resource: round(value, 9) for resource, value in used.items()} == {
        "arithmetic": 0.5,
        "bandwidth": 0.5,
    }


def test_a_model_of_unknown_cost_is_timed_all_the_same():
    metrics, meter = metered(cost=None)
    meter.forward([Segment(held(4), (1,))], rows=4, batch_size=1, took_s=0.5)
    assert scraped(metrics).total("forward_duration_seconds_count") == 1
    assert scraped(metrics).total("forward_flops_total") == 0


def test_another_model_has_series_of_its_own():
    metrics, meter = metered()
    meter.forward([Segment(held(4), (1,))], rows=4, batch_size=1, took_s=0.5)
    meter.serve(SimpleNamespace(model="other"), COST)
    meter.forward([Segment(held(4), (1,))], rows=8, batch_size=1, took_s=0.5)
    assert scraped(metrics).values("forward_rows_sum", "model_name") == {"m": 4, "other": 8}
    assert scraped(metrics).values("forward_flops_total", "model_name") == {"m": 8000, "other": 16000}


def test_a_round_is_split_into_queue_and_compute():
    metrics, meter = metered()
    meter.answered(Timings(queue_us=2000, compute_us=30_000))
    assert scraped(metrics).values("round_duration_seconds_sum", "phase") == {"queue": 0.002, "compute": 0.03}


def test_sessions_are_open_leased_and_perhaps_not_served_yet():
    def session(*, stream=True, answered=False, started=None):
        round_ = SimpleNamespace(started_ns=started)
        return SimpleNamespace(
            connection=object() if stream else None,
            answered=object() if answered else None,
            rounds=deque([round_]),
        )

    idle = SimpleNamespace(connection=object(), answered=object(), rounds=deque())
    sessions = [session(), session(started=5), session(answered=True), session(stream=False), idle]
    assert SessionCounts.of(sessions) == SessionCounts(num_open=4, num_leased=1, num_unserved=2)
