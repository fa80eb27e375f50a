"""`outrider generate` as a process, against a gateway that runs here."""

import asyncio
import json
import signal
import sys
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from outrider.cli.main import app
from outrider.client import DraftSource, FinishReason, Speculation
from outrider.rpc import errors
from outrider.sampling.acceptance import TokenLogprobs
from outrider.sampling.parameters import SamplingParameters
from outrider.wire.generation import Costs, Failure
from tests.support.gateway import running_gateway
from tests.support.scripted import Script

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


@pytest.fixture
async def address(backend):
    async with running_gateway(backend) as address:
        yield address


async def start(address, *arguments):
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "outrider.cli.main",
        "generate",
        "--server",
        address,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(address, *arguments, stdin=b""):
    process = await start(address, *arguments)
    out, error = await process.communicate(stdin)
    return process.returncode, out.decode(), error.decode()


async def test_text_goes_to_stdout_and_the_summary_to_stderr(backend, address, ids):
    script = backend.play(Script([ids("one two"), ids(" 小さな")], end=FinishReason.STOP))
    code, out, error = await run(address, "say it", "--system", "short", "--seed", "5")
    assert (code, out) == (0, "one two 小さな\n")
    assert script.request.prompt == (0, *ids("<|system|>short\n<|user|>say it\n<|assistant|>"))
    num_tokens = sum(map(len, script.rounds))
    counters = script.counters()
    for text in (
        f"{len(script.request.prompt)} + {num_tokens} tokens",
        "finished by stop",
        "seed 5",
        f"2 rounds · 8 drafted · {counters.accepted} accepted",
        f"tau {counters.tau:.2f}",
        "numerics numerics (bitwise)",
    ):
        assert text in error


async def test_json_has_exactly_the_promised_keys(backend, address, ids):
    script = backend.play(Script([ids("one two"), ids(" three")]))
    code, out, error = await run(address, "one", "--json", "--seed", str(2**53 - 1), "--stop", "thr", "--raw")
    assert (code, error) == (0, "")
    document = json.loads(out)
    assert list(document) == KEYS
    counters = script.counters(3)
    assert document == {
        "text": "one two ",
        "token_ids": list(ids("one two three")),
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "seed": 2**53 - 1,
        "finish_reason": "stop_string",
        "rounds": 2,
        "drafted": 8,
        "accepted": counters.accepted,
        "acceptance_rate": counters.acceptance_rate,
        "tau": counters.tau,
        "reopens": 0,
        "raw_accepted": counters.raw_accepted,
        "discarded_rounds": counters.discarded_rounds,
        "missed_proposals": 0,
        "drafted_by_position": [],
        "accepted_by_position": [],
        "by_source": [],
        "costs": asdict(Costs()),
        "numerics_id": "numerics",
        "trace_id": "",
    }


async def test_json_with_logprobs_has_one_entry_a_token(backend, address, ids):
    tokens = ids("one two")
    entries = tuple(TokenLogprobs(-0.5, (token, 7), (-0.5, -1.5)) for token in tokens)
    backend.play(Script([tokens], logprobs=[entries]))
    _, out, _ = await run(address, "one", "--json", "--logprobs", "2")
    document = json.loads(out)
    assert list(document) == [*KEYS, "logprobs"]
    assert document["logprobs"] == [
        {
            "token_id": token,
            "logprob": -0.5,
            "top": [{"token_id": token, "logprob": -0.5}, {"token_id": 7, "logprob": -1.5}],
        }
        for token in tokens
    ]


async def test_token_by_token_the_answer_is_the_same(backend, address, ids):
    backend.play(Script([ids("one two three")]))
    _, whole, _ = await run(address, "one")
    _, single, _ = await run(address, "one", "--token-by-token")
    assert whole == single != ""


async def test_every_option_reaches_the_scheduler(backend, address, ids):
    script = backend.play(Script([ids("one")]))
    arguments = (
        "--raw --k 0 --w 3 --source ngram --min-confidence 0.5 --temperature 0.5 --top-p 0.25 --top-k 7"
        " --min-p 0.125 --seed 9"
        " --repetition-penalty 1.5 --presence-penalty 0.5 --frequency-penalty -0.5 --max-tokens 17"
        " --min-tokens 2 --ignore-eos --logprobs 1 --model tiny"
    )
    code, _, _ = await run(address, "one two", *arguments.split())
    request = script.request
    assert code == 0
    assert request.prompt == (0, *ids("one two"))
    assert request.speculation == Speculation(k=0, w=3, source=DraftSource.NGRAM, min_confidence=0.5)
    assert request.seed == 9
    assert request.sampling == SamplingParameters(
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.125,
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        max_tokens=17,
        min_tokens=2,
        ignore_eos=True,
        logprobs=1,
    )


async def test_bounds_targets_and_what_concerns_the_store_reach_the_scheduler(backend, address, ids):
    script = backend.play(Script([ids("one")]))
    arguments = "--min-k 2 --max-k 5 --tpot-target-ms 30 --finish-target-ms 900 --workload poetry --no-store"
    code, _, _ = await run(address, "one two", *arguments.split())
    request = script.request
    assert code == 0
    assert request.speculation == Speculation(min_k=2, max_k=5, tpot_target_ms=30, finish_target_ms=900)
    assert (request.store, request.workload) == (False, "poetry")
    await run(address, "one two")
    assert (script.request.store, script.request.workload) == (True, "prose")


async def test_a_dash_reads_the_prompt_from_standard_input(backend, address, ids):
    script = backend.play(Script([ids("one")]))
    await run(address, "-", "--raw", stdin="one\n小さな".encode())
    assert script.request.prompt == (0, *ids("one\n小さな"))


async def test_what_the_gateway_refuses_is_one_line_and_exit_code_1(backend, address):
    backend.play(Script(refusal=errors.InvalidArgument("k is 65; give at most 64", field="k")))
    assert await run(address, "one", "--k", "65") == (1, "", "error: k is 65; give at most 64\n")


async def test_an_answer_that_fails_in_the_middle_keeps_its_text_and_says_why(backend, address, ids):
    backend.play(
        Script([ids("one two")], end=Failure("NO_EQUAL_REPLICA", "no equal replica", retryable=True))
    )
    assert await run(address, "one") == (1, "one two\n", "error: no equal replica\n")


async def test_ctrl_c_ends_the_session_quietly(backend, address, ids):
    script = backend.play(Script([ids("one two")], end=None))
    process = await start(address, "one")
    assert await process.stdout.read(7) == b"one two"
    process.send_signal(signal.SIGINT)
    out, error = await process.communicate()
    assert (process.returncode, out, error) == (130, b"\n", b"\n")
    await asyncio.wait_for(script.cancelled.wait(), 10)


NOBODY = ["--server", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one"], "no gateway answers at 127.0.0.1:1"),
        (["one", "--k", "-1"], "k is -1; give 0 or more"),
        (["one", "--min-k", "4", "--max-k", "3"], "min_k is 4, above max_k, 3; swap them"),
        (["one", "--k", "4", "--max-k", "3"], "max_k bounds a k that is chosen for each round, and k is 4"),
        (["one", "--tpot-target-ms", "0"], "tpot_target_ms is 0; give 1 or more"),
        (["one", "--w", "0"], "w is 0; give 1 or more"),
        (["one", "--seed", "-1"], "seed is -1; give 0 or more"),
        (["one", "--top-p", "0"], "top_p is 0.0; give a number above 0"),
        (["one", "--temperature", "-1"], "temperature is -1.0; give"),
        (["one", "--max-tokens", "0"], "max_tokens is 0; give"),
    ],
)
def test_an_error_is_one_line(arguments, message):
    result = CliRunner().invoke(app, ["generate", *NOBODY, *arguments])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "prompt"),
        ([""], "error: the prompt is empty; give some text\n"),
        (["-"], "error: standard input is empty; give some text\n"),
        (["one", "--source", "oracle"], "'oracle' is not one of 'none', 'ngram', 'model', 'pattern_cache'"),
        (["one", "--k", "many"], "--k"),
        (["one", "--raw", "--system", "x"], "a raw prompt has no system message"),
        (["one", "--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments, message):
    result = CliRunner().invoke(app, ["generate", *NOBODY, *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_standard_input_that_is_no_text_is_refused():
    result = CliRunner().invoke(app, ["generate", *NOBODY, "-"], input=b"\xff\xfe")
    assert result.exit_code == 1
    assert "standard input is not UTF-8 text" in result.stderr
