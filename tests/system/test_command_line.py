"""The command line with real processes: `outrider up`, and `outrider generate` against it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from outrider.client import Completion, Delta, DraftSource, OutriderClient, SamplingParameters, Speculation
from outrider.client.completion import collect
from tests.support.calls import load_of, until_drafts_ready
from tests.support.command_line import Up, begin, outrider, runs, wait_for
from tests.support.models import tiny_model, with_noise

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes are looked up in /proc, and die with their parent"
)

SMALL = {"OUTRIDER_NUM_THREADS": "1", "OUTRIDER_KV_BUDGET_MIB": "16", "OUTRIDER_DTYPE": "float32"}
PROMPT = "def fibonacci(n):"
KEYS = [
    "text",
    "token_ids",
    "prompt_tokens",
    "completion_tokens",
    "seed",
    "finish_reason",
    "rounds",
    "drafted",
    "accepted",
    "acceptance_rate",
    "tau",
    "reopens",
    "raw_accepted",
    "discarded_rounds",
    "missed_proposals",
    "drafted_by_position",
    "accepted_by_position",
    "by_source",
    "costs",
    "numerics_id",
    "trace_id",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target, and a draft that is right about half the time."""
    folder = tmp_path_factory.mktemp("models")
    target = tiny_model(folder / "target")
    return target, with_noise(target, folder / "draft", scale=0.1)


@pytest.fixture(scope="module")
def up(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Four processes."""
    target, draft = models
    with Up(tmp_path_factory.mktemp("up"), ("--models", f"{target},{draft}"), SMALL) as up:
        up.wait_until_ready()
        asyncio.run(until_drafts_ready(up.address("scheduler")))
        yield up


def generate(up: Up, *arguments: str, text: str = "") -> dict[str, Any]:
    """What `outrider generate --json` prints."""
    common = ("--server", up.gateway, "--json", "--max-tokens", "48", "--ignore-eos")
    result = outrider("generate", *common, *arguments, text=text)
    assert (result.returncode, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def num_sessions(up: Up) -> list[int]:
    """Sessions that the workers hold."""

    async def ask() -> list[int]:
        return [(await load_of(up.address(name))).num_sessions for name in ("validator", "draft")]

    return asyncio.run(ask())


def test_up_tells_where_everything_is(up: Up):
    document = up.document
    assert document["pid"] == up.pid
    assert list(document["processes"]) == ["validator", "draft", "scheduler", "gateway"]
    assert document["gateway"] == up.address("gateway")
    for name, process in document["processes"].items():
        assert runs(process["pid"])
        assert Path(process["log"]).stat().st_size
        assert f"{name:<12} {process['address']:<16} ready in" in up.output
    assert f"--server {up.gateway}" in up.output


def test_json_is_one_object_with_exactly_these_keys(up: Up):
    document = generate(up, PROMPT, "--seed", "3")
    assert list(document) == KEYS
    assert document["completion_tokens"] == len(document["token_ids"]) == 48
    assert (document["seed"], document["finish_reason"], document["reopens"]) == (3, "length", 0)
    # No trace is asked for; and the first token comes with the prompt's own pass.
    assert document["trace_id"] == ""
    assert document["tau"] == pytest.approx((48 - 1) / document["rounds"])
    assert document["acceptance_rate"] == pytest.approx(document["accepted"] / document["drafted"])
    assert 0 < document["accepted"] < document["drafted"]


def test_k_and_source_do_not_change_the_answer(up: Up):
    plain = generate(up, PROMPT, "--seed", "3", "--k", "0")
    assert (plain["drafted"], plain["tau"]) == (0, 1.0)
    for flags in (("--k", "4", "--source", "model"), ("--k", "4", "--source", "ngram"), ("--source", "none")):
        other = generate(up, PROMPT, "--seed", "3", *flags)
        assert (other["token_ids"], other["text"]) == (plain["token_ids"], plain["text"])


def test_a_drawn_seed_is_told_and_gives_the_same_answer_again(up: Up):
    drawn = generate(up, PROMPT)
    again, other = (generate(up, PROMPT, "--seed", str(drawn["seed"] + by)) for by in (0, 1))
    assert again["token_ids"] == drawn["token_ids"]
    assert other["token_ids"] != drawn["token_ids"]


def test_logprobs_come_for_every_token(up: Up):
    document = generate(up, PROMPT, "--logprobs", "2", "--temperature", "0")
    assert list(document) == [*KEYS, "logprobs"]
    assert [entry["token_id"] for entry in document["logprobs"]] == document["token_ids"]
    for entry in document["logprobs"]:
        assert len(entry["top"]) == 2
        # Without temperature the best one is taken.
        assert entry["top"][0] == {"token_id": entry["token_id"], "logprob": entry["logprob"]}


def test_a_prompt_goes_through_the_chat_template_unless_it_is_raw(up: Up, models: tuple[Path, Path]):
    tokenizer = Tokenizer.from_file(str(models[0] / "tokenizer.json"))
    rendered = f"<|start|>user\n{PROMPT}<|end|>\n<|start|>assistant\n"
    chat, raw = generate(up, PROMPT), generate(up, PROMPT, "--raw")
    assert chat["prompt_tokens"] == len(tokenizer.encode(rendered).ids)
    assert raw["prompt_tokens"] == len(tokenizer.encode(PROMPT).ids)


def test_the_prompt_can_come_from_standard_input(up: Up):
    text = "Grüße,\n東京"
    read, given = generate(up, "-", "--seed", "5", text=text), generate(up, text, "--seed", "5")
    for key in ("token_ids", "text", "prompt_tokens"):
        assert read[key] == given[key]


def test_a_person_sees_the_text_and_then_the_summary(up: Up):
    flags = ("--server", up.gateway, "--seed", "3", "--max-tokens", "48", "--ignore-eos")
    result = outrider("generate", PROMPT, *flags)
    assert result.returncode == 0
    document = generate(up, PROMPT, "--seed", "3")
    assert result.stdout == document["text"] + "\n"
    first, second, *sources, last = result.stderr.splitlines()
    assert first.startswith(f"{document['prompt_tokens']} + 48 tokens · first after ")
    assert first.endswith(" tokens/s · finished by length · seed 3")
    assert "accepted (" in second
    # Only where several sources drafted.
    assert all(" of " in part for line in sources for part in line.split(" · "))
    assert last.startswith(f"numerics {document['numerics_id']} (bitwise)")


def test_a_warmed_prompt_is_answered_from_its_draft_and_alike_and_purged(up: Up, tmp_path: Path):
    """Prompts that nobody else here asks."""
    prompt, flags = "def warmed(n):", ("--temperature", "0", "--source", "candidate_cache")
    cold = generate(up, prompt, *flags, "--no-store")
    assert cold["drafted"] == 0
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"prompt": prompt}) + "\n")
    common = ("--server", up.gateway)
    warmed = outrider("warm", str(file), *common, "--max-tokens", "48")
    assert (warmed.returncode, warmed.stderr) == (0, "")
    assert warmed.stdout.startswith("1 of 1 prompts answered, 1 answers of ")
    warm = generate(up, prompt, *flags)
    assert warm["token_ids"] == cold["token_ids"]
    assert warm["rounds"] < cold["rounds"]
    assert warm["by_source"] == [
        {"source": "candidate_cache", "drafted": warm["drafted"], "accepted": warm["accepted"]}
    ]
    purged = outrider("purge", *common)
    assert purged.returncode == 0
    assert int(purged.stdout.split()[0]) > 0
    assert outrider("purge", *common).stdout == "0 entries removed\n"
    assert generate(up, prompt, *flags, "--no-store")["token_ids"] == cold["token_ids"]


def test_top_shows_what_was_drafted(up: Up):
    generate(up, PROMPT, "--seed", "3", "--k", "4", "--source", "model")
    scheduler = ("--scheduler", up.address("scheduler"), "--once")
    result = outrider("top", *scheduler)
    assert (result.returncode, result.stderr) == (0, "")
    for part in (
        "validator ",
        "draft ",
        " ready · ",
        " pages",
        "by depth",
        "alerts 0 of ",
        "store memory well",
    ):
        assert part in result.stdout, part
    (found,) = json.loads(outrider("top", *scheduler, "--json").stdout)["schedulers"]
    drafted = {each["source"]: each["drafted"] for each in found["state"]["control"]["sources"]}
    assert drafted["model"] > 0
    assert sum(found["state"]["control"]["rounds_by_k"]) > 0


def test_ctrl_c_ends_the_answer_and_frees_its_session(up: Up):
    flags = ("--server", up.gateway, "--k", "0", "--max-tokens", "400", "--ignore-eos", "--seed", "3")
    running = begin("generate", PROMPT, *flags, PYTHONUNBUFFERED="1")
    try:
        assert running.stdout is not None
        assert running.stdout.read(1)
        assert num_sessions(up)[0] == 1
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 130
    assert errors.strip() == ""
    wait_for(lambda: num_sessions(up) == [0, 0], "no session is left")


async def answer(up: Up, *, kill: str = "") -> Completion:
    """A long answer; `kill` names the process that is killed in the middle of it."""
    sampling = SamplingParameters(max_tokens=300, ignore_eos=True)
    options = {"sampling": sampling, "seed": 7, "speculation": Speculation(k=4, source=DraftSource.MODEL)}
    async with OutriderClient(up.gateway) as client:
        events = client.generate(PROMPT, **options)  # type: ignore[arg-type]  # of mixed types
        async with aclosing(events):
            first = await anext(events)
            assert isinstance(first, Delta)
            if kill:
                os.kill(up.pids[kill], signal.SIGKILL)
            rest = await collect(events)
    return Completion(first.text + rest.text, first.token_ids + rest.token_ids, (), rest.final)


@pytest.mark.parametrize("name", ["draft", "validator"])
def test_a_killed_worker_is_started_again_and_an_answer_survives_it(up: Up, name: str):
    undisturbed = asyncio.run(answer(up))
    before = up.pids
    disturbed = asyncio.run(answer(up, kill=name))
    assert disturbed.token_ids == undisturbed.token_ids
    assert disturbed.text == undisturbed.text
    assert disturbed.final.counters.reopens == (name == "validator")
    if name == "draft":
        assert disturbed.final.draft_status
    wait_for(lambda: f"{name} is ready again" in up.output, f"{name} is back")
    after = up.pids
    assert {each for each in after if after[each] != before[each]} == {name}
    assert f"{name} was killed by SIGKILL" in up.output
    asyncio.run(until_drafts_ready(up.address("scheduler")))
    again = generate(up, PROMPT, "--seed", "3", "--source", "model")
    assert again["token_ids"] == generate(up, PROMPT, "--seed", "3", "--k", "0")["token_ids"]
    assert again["drafted"] > 0
    wait_for(lambda: num_sessions(up) == [0, 0], "no session is left")


def test_ctrl_c_stops_everything(models: tuple[Path, Path], tmp_path: Path):
    """Without a draft, for a change."""
    with Up(tmp_path, ("--models", str(models[0])), SMALL) as up:
        up.wait_until_ready()
        pids, document = up.pids, up.document
        assert list(pids) == ["validator", "scheduler", "gateway"]
        assert generate(up, PROMPT, "--raw")["completion_tokens"] == 48
        assert up.signal(signal.SIGINT) == 0
        assert not [name for name, pid in pids.items() if runs(pid)]
        assert not up.ready_file.exists()
        assert up.output.splitlines()[-1] == "stopping"
    for process in document["processes"].values():
        assert "Traceback" not in Path(process["log"]).read_text()
        host, port = process["address"].split(":")
        with socket.socket() as probe:
            assert probe.connect_ex((host, int(port)))


def test_processes_do_not_outlive_a_killed_up(up: Up):
    """The last one here: nothing is left to ask."""
    pids = up.pids
    assert all(runs(pid) for pid in pids.values())
    up.signal(signal.SIGKILL)
    wait_for(lambda: not any(runs(pid) for pid in pids.values()), "the processes have ended")
