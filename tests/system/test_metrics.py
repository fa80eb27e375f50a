"""What Prometheus gets of four real processes: each declared metric, no other, and the answers' numbers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from outrider.client import (
    Completion,
    Costs,
    DraftSource,
    OutriderClient,
    OutriderError,
    SamplingParameters,
    Speculation,
)
from outrider.telemetry import In
from outrider.telemetry.metric import PREFIX
from outrider.telemetry.metric_names import METRICS, ONLY_WITH_GPU, STANDARD
from tests.support.calls import until_drafts_ready
from tests.support.cluster import Cluster, Process, start_all
from tests.support.metrics import Scrape, scrape
from tests.support.models import tiny_model, with_noise

PROMPT = "The zebra runs past the old mill. " * 8
NUM_TOKENS = 40
SMALL = {
    "OUTRIDER_NUM_THREADS": "1",
    "OUTRIDER_KV_BUDGET_MIB": "16",
    "OUTRIDER_DTYPE": "float32",
    "OUTRIDER_METRICS_PORT": "0",
}


class House(NamedTuple):
    """Four processes."""

    processes: dict[str, Process]

    def scrapes(self) -> dict[str, Scrape]:
        return {name: scrape(process) for name, process in self.processes.items()}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("metrics")
    model = tiny_model(folder / "tiny")
    with Cluster(folder, SMALL) as cluster:
        validator = cluster.validator(model)
        draft = cluster.draft(with_noise(model, folder / "draft", scale=0.1))
        start_all(validator, draft)
        scheduler = cluster.scheduler([validator], [draft.address]).start()
        gateway = cluster.gateway(scheduler).start()
        asyncio.run(until_drafts_ready(scheduler.address))
        yield House({"gateway": gateway, "scheduler": scheduler, "draft": draft, "validator": validator})


async def answer(
    client: OutriderClient, *, k: int, source: DraftSource, stop: tuple[str, ...] = ()
) -> Completion:
    return await client.complete(
        PROMPT,
        sampling=SamplingParameters(max_tokens=NUM_TOKENS, ignore_eos=True),
        seed=3,
        stop=stop,
        speculation=Speculation(k=k, source=source),
    )


class Seen(NamedTuple):
    """Answers, and what the processes said of them afterwards."""

    completions: dict[str, Completion]
    # The scheduler's, behind the answers that nothing cut short.
    counted: Scrape
    # Of all, at the end.
    scrapes: dict[str, Scrape]


@pytest.fixture(scope="module")
def seen(house: House) -> Seen:
    async def ask() -> tuple[dict[str, Completion], Scrape]:
        async with OutriderClient(house.processes["gateway"].address) as client:
            answers = {
                "model": await answer(client, k=4, source=DraftSource.MODEL),
                "ngram": await answer(client, k=4, source=DraftSource.NGRAM),
                "plain": await answer(client, k=0, source=DraftSource.NONE),
            }
            while (counted := scrape(house.processes["scheduler"])).total("num_requests_running"):
                pass  # a session is counted when it is retired, right behind its last message
            text = answers["plain"].text
            middle = text[len(text) // 2 : len(text) // 2 + 3]
            answers["stopped"] = await answer(client, k=4, source=DraftSource.MODEL, stop=(middle,))
            with pytest.raises(OutriderError):
                await client.complete("x " * 2000)
            events = client.generate(PROMPT, sampling=SamplingParameters(max_tokens=400, ignore_eos=True))
            await anext(events)
            await events.aclose()
            return answers, counted

    completions, counted = asyncio.run(ask())
    assert {each.text for name, each in completions.items() if name != "stopped"} == {
        completions["plain"].text
    }

    def settled(scrapes: dict[str, Scrape]) -> bool:
        idle = sum(each.total("num_requests_running") for each in scrapes.values()) == 0
        return idle and scrapes["gateway"].total("request_success_total") == len(completions) + 1

    scrapes = house.scrapes()
    while not settled(scrapes):  # the cancelled request is on its way out
        scrapes = house.scrapes()
    return Seen(completions, counted, scrapes)


@pytest.mark.parametrize("name", ["gateway", "scheduler", "draft", "validator"])
def test_every_declared_metric_is_exported_and_no_other(seen: Seen, name: str):
    declared = {
        metric.name for metric in METRICS if In(name) in metric.processes and metric not in ONLY_WITH_GPU
    }
    exported = {
        family
        for family in seen.scrapes[name].families
        if any(sample.name.startswith(family) for sample in seen.scrapes[name].samples)
    }
    assert exported == declared | set(STANDARD)


@pytest.mark.parametrize("name", ["gateway", "scheduler", "draft", "validator"])
def test_labels_are_those_that_are_declared(seen: Seen, name: str):
    labels = {metric.name: set(metric.labels) for metric in METRICS}
    for sample in seen.scrapes[name].samples:
        if sample.name.startswith(PREFIX):
            stem = next(each for each in labels if sample.name in (each, *_parts(each)))
            assert sample.labels.keys() - {"le"} == labels[stem], sample.name


def _parts(name: str) -> list[str]:
    return [f"{name}_{part}" for part in ("bucket", "sum", "count")]


def test_c72_rounds_and_tokens_are_those_of_the_answers(seen: Seen):
    scheduler = seen.counted
    for name, source in (("model", "model"), ("ngram", "ngram"), ("plain", "none")):
        counters = seen.completions[name].final.counters
        of_source = {"draft_source": source}
        accepted = scheduler.total("spec_decode_num_accepted_tokens_total", **of_source)
        assert scheduler.total("spec_decode_num_draft_tokens_total", **of_source) == counters.drafted
        assert accepted == counters.accepted
        by_position = scheduler.values(
            "spec_decode_num_accepted_tokens_per_pos_total", "position", **of_source
        )
        assert tuple(by_position.values()) == counters.accepted_by_position
    answers = [seen.completions[name].final.counters for name in ("model", "ngram", "plain")]
    assert scheduler.total("rounds_total") == sum(counters.rounds for counters in answers)
    assert scheduler.total("committed_tokens_total") == sum(counters.committed for counters in answers)
    # All its rounds but those without a draft, whose tokens are in no mean.
    length = scheduler.total("mean_acceptance_length", draft_source="model")
    rounds = scheduler.total("rounds_total", draft_source="model")
    assert length == scheduler.total("committed_tokens_total", draft_source="model") / rounds > 1


def test_c11_what_a_stop_string_cut_off_is_given_out_nowhere(seen: Seen):
    stopped = seen.completions["stopped"].final
    assert stopped.finish_reason.name == "STOP_STRING"
    assert 0 < stopped.completion_tokens < NUM_TOKENS
    assert stopped.counters.committed == stopped.completion_tokens - 1


def test_c77_usage_and_time_per_token_count_tokens(seen: Seen):
    gateway = seen.scrapes["gateway"]
    tokens = [len(each.token_ids) for each in seen.completions.values()]
    counted = gateway.total("generation_tokens_total")
    # Beside them is the one that was cancelled.
    assert sum(tokens) < counted <= sum(tokens) + 400
    assert [each.final.completion_tokens for each in seen.completions.values()] == tokens
    assert gateway.total("inter_token_latency_seconds_count") == len(tokens)
    assert gateway.total("e2e_request_latency_seconds_count") == len(tokens)
    assert gateway.total("time_to_first_token_seconds_count") == len(tokens) + 1
    assert gateway.values("request_success_total", "finished_reason") == {
        "length": 3,
        "stop_string": 1,
        "cancelled": 1,
    }
    assert gateway.total("request_errors_total") == 1


def test_an_answer_tells_acceptance_by_position(seen: Seen):
    for name in ("model", "ngram", "stopped"):
        counters = seen.completions[name].final.counters
        assert sum(counters.drafted_by_position) == counters.drafted > 0
        assert sum(counters.accepted_by_position) == counters.accepted
        assert len(counters.accepted_by_position) == len(counters.drafted_by_position) <= 4
        assert list(counters.accepted_by_position) == sorted(counters.accepted_by_position, reverse=True)
    plain = seen.completions["plain"].final.counters
    assert plain.drafted_by_position == plain.accepted_by_position == ()


def test_an_answer_tells_what_it_took(seen: Seen):
    drafted, plain = seen.completions["model"].final.costs, seen.completions["plain"].final.costs
    assert plain.verify_us > plain.validator_compute_us > 0
    assert (plain.draft_us, plain.draft_sent_bytes, plain.draft_received_bytes) == (0, 0, 0)
    assert drafted.draft_us >= drafted.draft_compute_us > 0
    sizes = [drafted.draft_sent_bytes, drafted.draft_received_bytes]
    sizes += [drafted.validator_sent_bytes, drafted.validator_received_bytes]
    rounds = seen.completions["model"].final.counters.rounds
    # A header alone has 20 bytes; a prompt of some hundred tokens goes once.
    assert all(20 * rounds < size < 2000 + 300 * rounds for size in sizes)
    # Each round: question and answer, to each worker; the openings have one more.
    assert 4 * rounds <= drafted.hops <= 4 * rounds + 12
    assert plain.hops == 2 * (seen.completions["plain"].final.counters.rounds + 1) + 1
    assert drafted != Costs()


@pytest.mark.parametrize("role", ["draft", "validator"])
def test_both_ends_of_a_stream_count_the_same(house: House, seen: Seen, role: str):
    scheduler, worker = house.processes["scheduler"], house.processes[role]
    # A worker that rests may tell its load once more while the two are read: then they are read again.
    while (sent := _carried(worker, "scheduler", "sent")) != _carried(scheduler, role, "received"):
        pass
    assert sent[0] > sent[1] > 10
    assert _carried(scheduler, role, "sent") == _carried(worker, "scheduler", "received")


def _carried(process: Process, peer: str, direction: str) -> tuple[float, float]:
    """Bytes and messages so far."""
    found = scrape(process)
    names = ("stream_bytes_total", "stream_messages_total")
    return found.total(names[0], peer=peer, direction=direction), found.total(
        names[1], peer=peer, direction=direction
    )


def test_workers_tell_what_they_hold_and_what_they_can(seen: Seen):
    for role in ("draft", "validator"):
        worker = seen.scrapes[role]
        assert worker.total("kv_cache_used_pages") == worker.total("num_requests_waiting") == 0
        assert worker.total("kv_cache_pages") >= worker.total("kv_cache_kept_pages")
        # Prompts were alike from the second one on.
        queries, hits = worker.total("cache_queries_total"), worker.total("cache_hits_total")
        assert 0 < hits < queries
        assert worker.total("device_peak_flops_per_second") > 0
        assert worker.total("model_utilization_ratio", resource="bandwidth") > 0
        (info,) = worker.labels("model_info")
        assert info["dtype"] == "float32"
    (info,) = seen.scrapes["validator"].labels("model_info")
    assert info["numerics_id"] == seen.completions["plain"].final.numerics_id


def test_a_metrics_port_in_use_stops_the_start_with_one_line(tmp_path: Path):
    with socket.socket() as taken, Cluster(tmp_path, SMALL) as cluster:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        process = cluster.process("services.scheduler", "--metrics-port", port).launch()
        assert process.wait() == 2
        assert process.log.startswith(f"outrider-scheduler: cannot listen on 127.0.0.1:{port}: address alr")
        assert "--metrics-port (OUTRIDER_METRICS_PORT)" in process.log
        assert process.log.count("\n") == 1


def test_metrics_can_be_off(tmp_path: Path):
    with Cluster(tmp_path, SMALL) as cluster:
        process = cluster.process("services.scheduler", "--metrics-port", "off", "--drafts", "").start()
        assert "metrics" not in json.loads(process.ready_file.read_text(encoding="utf-8"))
        assert process.stop() == 0
