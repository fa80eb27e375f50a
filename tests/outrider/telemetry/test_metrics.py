import math
import os
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from outrider.telemetry import In, Metrics, Reading
from outrider.telemetry import metric_names as names
from outrider.telemetry.metrics import Undeclared
from tests.support.metrics import parsed


def scraped(metrics: Metrics):
    return parsed(generate_latest(metrics.registry).decode())


def test_a_series_is_looked_up_once_and_added_to():
    metrics = Metrics(In.GATEWAY)
    first = metrics.counter(names.PROMPT_TOKENS, "m")
    assert metrics.counter(names.PROMPT_TOKENS, "m") is first
    first.inc(3)
    metrics.counter(names.PROMPT_TOKENS, "other").inc(4)
    assert scraped(metrics).values("prompt_tokens_total", "model_name") == {"m": 3, "other": 4}


def test_a_reading_is_taken_at_each_scrape():
    metrics, pages = Metrics(In.DRAFT), [5.0]
    metrics.read(lambda: [Reading(names.KV_CACHE_PAGES, pages[0]), Reading(names.CACHE_HITS, 7, ("prefix",))])
    assert scraped(metrics).total("kv_cache_pages") == 5
    pages[0] = 6
    assert scraped(metrics).total("kv_cache_pages") == 6
    assert scraped(metrics).values("cache_hits_total", "source") == {"prefix": 7}


def test_what_is_not_declared_for_the_process_is_an_error():
    metrics = Metrics(In.GATEWAY)
    with pytest.raises(Undeclared, match="outrider_kv_cache_pages is not declared for gateway"):
        metrics.gauge(names.KV_CACHE_PAGES)
    metrics.read(lambda: [Reading(names.KV_CACHE_PAGES, 1)])
    with pytest.raises(Undeclared, match="outrider_kv_cache_pages"):
        generate_latest(metrics.registry)


def test_processes_of_one_interpreter_do_not_share():
    left, right = Metrics(In.SCHEDULER), Metrics(In.SCHEDULER)
    left.histogram(names.REQUEST_QUEUE_TIME, "m").observe(1)
    assert scraped(left).total("request_queue_time_seconds_count") == 1
    assert not scraped(right).labels("request_queue_time_seconds_count")


def test_histograms_have_the_buckets_that_are_declared():
    metrics = Metrics(In.VALIDATOR)
    metrics.histogram(names.FORWARD_ROWS, "m").observe(12)
    buckets = scraped(metrics).values("forward_rows_bucket", "le")
    assert [float(bound) for bound in buckets] == [*names.ROW_COUNTS, math.inf]
    assert (buckets["8.0"], buckets["16.0"]) == (0, 1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_memory_of_the_process_itself():
    scrape = scraped(Metrics(In.GATEWAY))
    resident = next(each for each in scrape.samples if each.name == "process_resident_memory_bytes").value
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    assert resident == pytest.approx(pages * os.sysconf("SC_PAGESIZE"), rel=0.5)
    assert scrape.total("process_peak_resident_memory_bytes") >= 0.9 * resident


def test_no_series_carries_the_time_of_its_making():
    metrics = Metrics(In.GATEWAY)
    metrics.counter(names.PROMPT_TOKENS, "m")
    assert "_created" not in generate_latest(metrics.registry).decode()
