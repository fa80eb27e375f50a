"""C-72 to C-74: what the numbers count, and that each says so (C-77 is with the gateway's meter)."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from prometheus_client import generate_latest

from outrider.sampling import DraftTree, SamplingParameters, TokenSampler, judge
from outrider.sampling.acceptance import FinishReason
from outrider.telemetry import In, Metrics
from outrider.telemetry.metric import Kind
from outrider.telemetry.metric_names import METRICS
from outrider.wire.generation import DraftSource
from services.scheduler.metering import Meter
from services.scheduler.rounds import Ledger, RoundRecord
from tests.support.metrics import parsed

ROOT = Path(__file__).parents[2]
BY_NAME = {metric.name: metric for metric in METRICS}
EOS = 103
LABELS = {
    *("model_name", "draft_source", "position", "phase", "finished_reason", "reason", "direction", "peer"),
    *("state", "source", "resource", "gpu", "dtype", "device", "exactness", "numerics_id"),
    *("weight_fingerprint", "tokenizer_fingerprint", "model_version", "alert", "level", "result"),
}
"""All of them bounded: by the models, the protocol, the settings or the machine."""


class Scheduler:
    """The scheduler's metrics, and what a scrape of them gives."""

    def __init__(self):
        self.metrics = Metrics(In.SCHEDULER)
        self.meter = Meter(self.metrics)

    def run(self, *records):
        session, ledger = self.meter.session("m"), Ledger()
        for record in records:
            session.applied(record, 0.0)
            ledger.apply(record)
        counters = ledger.counters()
        session.close(counters)
        return counters

    @property
    def scrape(self):
        return parsed(generate_latest(self.metrics.registry).decode())


def test_c72_a_block_that_is_cut_at_its_end_id_adds_what_it_committed():
    """The verified [101, 102, EOS, 104, 105, 106] adds 3 tokens, of which 5 drafted ones had matched."""
    target = [101, 102, EOS, 104, 105, 106]
    sampler = TokenSampler(
        SamplingParameters(temperature=0.0, max_tokens=50),
        seed=0,
        choice=0,
        tokens=[1, 2],
        prompt_length=2,
        end_ids=frozenset({EOS}),
        vocab_size=200,
    )
    rows = np.zeros((len(target), 200), dtype=np.float32)
    rows[np.arange(len(target)), target] = 9.0
    judgement = judge(DraftTree.chain(target[:-1]), lambda node: rows[node + 1], sampler, max_length=500)
    assert (judgement.committed, judgement.finish_reason) == ((101, 102, EOS), FinishReason.STOP)
    scheduler = Scheduler()
    counters = scheduler.run(
        RoundRecord(
            committed=len(judgement.committed),
            accepted=judgement.accepted,
            raw_accepted=judgement.raw_accepted,
            drafted=5,
            source=DraftSource.MODEL,
            depth=5,
        )
    )
    scrape = scheduler.scrape
    assert counters.tau == scrape.total("mean_acceptance_length") == 3.0
    assert scrape.total("committed_tokens_total") / scrape.total("rounds_total") == 3.0
    assert scrape.total("spec_decode_num_accepted_tokens_total") == counters.accepted == 3
    assert scrape.total("spec_decode_num_raw_accepted_tokens_total") == counters.raw_accepted == 5
    assert scrape.total("spec_decode_num_draft_tokens_total") == 5


def test_c72_the_mean_is_over_all_rounds_pooled_and_not_over_requests():
    scheduler = Scheduler()
    full = RoundRecord(5, 4, 4, 4, source=DraftSource.MODEL, depth=4)
    missed = RoundRecord(1, 0, 0, 4, source=DraftSource.MODEL, depth=4)
    scheduler.run(full)
    scheduler.run(missed, missed, missed)
    # The mean of the two requests' own means would be 3.
    assert scheduler.scrape.total("mean_acceptance_length") == 2.0


def test_c73_a_draft_that_is_never_right_shows_as_one():
    scheduler = Scheduler()
    scheduler.run(*[RoundRecord(4, 3, 3, 3, source=DraftSource.MODEL, depth=3)] * 600)
    assert scheduler.scrape.total("mean_acceptance_length") == 4.0
    scheduler.run(*[RoundRecord(1, 0, 0, 3, source=DraftSource.MODEL, depth=3)] * 600)
    assert scheduler.scrape.values("mean_acceptance_length", "draft_source") == {"model": 1.0}


def test_c73_plain_rounds_neither_raise_nor_hide_the_alarm():
    scheduler = Scheduler()
    scheduler.run(*[RoundRecord(1, 0, 0, 0)] * 600)
    assert not scheduler.scrape.labels("mean_acceptance_length")
    scheduler.run(RoundRecord(4, 3, 3, 3, source=DraftSource.NGRAM, depth=3))
    assert scheduler.scrape.values("mean_acceptance_length", "draft_source") == {"ngram": 4.0}


def test_c73_there_is_an_alert_on_it():
    rules = alerting_rules()
    (rule,) = [each for each in rules if "outrider_mean_acceptance_length <" in each["expr"]]
    threshold = float(re.search(r"outrider_mean_acceptance_length < ([\d.]+)", rule["expr"])[1])
    assert 1.0 < threshold <= 1.1
    assert rule["for"] == "5m"


def alerting_rules():
    document = yaml.safe_load((ROOT / "docs" / "prometheus-alerts.yml").read_text(encoding="utf-8"))
    return list(itertools.chain.from_iterable(group["rules"] for group in document["groups"]))


def test_every_rule_and_every_recipe_names_metrics_that_exist():
    texts = [rule["expr"] for rule in alerting_rules()]
    texts.append((ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"))
    used = {name for text in texts for name in re.findall(r"outrider_\w+", text)}
    assert len(used) > 10
    histograms = {name for name, metric in BY_NAME.items() if metric.kind is Kind.HISTOGRAM}
    series = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    assert used <= BY_NAME.keys() | series


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.stem)
def test_c74_each_metric_states_its_definition(metric):
    assert len(metric.help) > 20
    assert metric.help.endswith(".")
    assert "\n" not in metric.help
    assert set(metric.labels) <= LABELS
    assert re.fullmatch(r"outrider_[a-z0-9]+(_[a-z0-9]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.name.endswith("_info") == (metric.kind is Kind.INFO)
    assert not re.search(r"_(ms|us|mib|mb|kb|percent)(_|$)", metric.name), "base units only"
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mean_acceptance_length", ["Committed tokens / rounds"]),
        ("rounds_total", ["k >= 0", "prefill"]),
        ("spec_decode_num_draft_tokens_total", ["put to the target"]),
        ("spec_decode_num_accepted_tokens_total", ["committed", "bonus"]),
        ("spec_decode_num_raw_accepted_tokens_total", ["before the cut"]),
        ("spec_decode_num_accepted_tokens_per_pos_total", ["unconditional"]),
        ("inter_token_latency_seconds", ["(n - 1)", "Not the gap between chunks"]),
    ],
)
def test_c74_figures_that_others_define_otherwise_say_how_they_are_meant(name, words):
    text = BY_NAME[f"outrider_{name}"].help
    assert all(word in text for word in words), text


def test_c74_a_scrape_carries_the_definitions():
    scheduler = Scheduler()
    scheduler.run(RoundRecord(2, 1, 1, 1, source=DraftSource.MODEL, depth=1))
    text = generate_latest(scheduler.metrics.registry).decode()
    told = dict(re.findall(r"^# HELP (outrider_\w+) (.+)$", text, flags=re.MULTILINE))
    assert len(told) > 10
    assert all(told[name] == BY_NAME[name].help for name in told)


def test_c74_the_page_of_definitions_is_current():
    command = [sys.executable, str(ROOT / "scripts" / "metrics_page.py"), "--check"]
    check = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert check.returncode == 0, check.stdout + check.stderr
