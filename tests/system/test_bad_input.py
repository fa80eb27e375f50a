"""Whatever is wrong with what comes in: one clear error, and everything goes on."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from tokenizers import Tokenizer

from outrider.client import (
    Chat,
    ChatMessage,
    Completion,
    DraftSource,
    OutriderClient,
    PromptIds,
    SamplingParameters,
    Speculation,
)
from outrider.rpc.channel import open_channel
from outrider.rpc.errors import OutriderError, error_from_rpc
from outrider.v1 import inference_pb2_grpc
from outrider.wire.inference import MAX_STOPS, GenerateRequest, encode_generate
from outrider.wire.state import WorkerStatus
from tests.support.calls import load_of, state_of, until_drafts_ready
from tests.support.cluster import Cluster, Process, start_all
from tests.support.command_line import SOURCE_FOLDER, outrider
from tests.support.deployment import until
from tests.support.models import CONTEXT_LENGTH, tiny_model, with_noise

SMALL = {"OUTRIDER_NUM_THREADS": "1", "OUTRIDER_KV_BUDGET_MIB": "16", "OUTRIDER_DTYPE": "float32"}
PROMPT = "def fibonacci(n):"
TOO_LONG = "fibonacci " * CONTEXT_LENGTH
OUTSIDE = 400
"""The tiny tokenizer's ids end before it."""
SWAPPED = 300
"""From this id on the other tokenizer differs."""
MAX_K = 16

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND


class Service(NamedTuple):
    """Four processes, a draft with another tokenizer, and a second front that knows that draft alone."""

    gateway: Process
    scheduler: Process
    workers: tuple[Process, ...]
    other_gateway: Process
    other_scheduler: Process
    expected: Completion

    async def complete(self, gateway: Process | None = None, **options: Any) -> Completion:
        """A good request."""
        async with OutriderClient((gateway or self.gateway).address) as client:
            return await client.complete(
                PROMPT, sampling=SamplingParameters(max_tokens=24, ignore_eos=True), seed=1, **options
            )

    async def still_works(self) -> None:
        """A good request gets its answer, and no session is left anywhere."""
        assert (await self.complete()).token_ids == self.expected.token_ids

        async def idle() -> bool:
            return not any([(await load_of(worker.address)).num_sessions for worker in self.workers])

        await until(idle)
        assert (await state_of(self.scheduler.address)).num_sessions == 0


def with_other_ids(source: Path, folder: Path) -> Path:
    """A copy of a model in whose tokenizer two ids have changed places."""
    shutil.copytree(source, folder)
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = document["model"]["vocab"]
    first, second = (next(token for token, id_ in vocabulary.items() if id_ == SWAPPED + by) for by in (0, 1))
    vocabulary[first], vocabulary[second] = SWAPPED + 1, SWAPPED
    path.write_text(json.dumps(document), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def service(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    with Cluster(folder, SMALL) as cluster:
        validator = cluster.validator(target)
        draft = cluster.draft(with_noise(target, folder / "draft", scale=0.1))
        other_draft = cluster.draft(with_other_ids(target, folder / "other"))
        start_all(validator, draft, other_draft)
        scheduler = cluster.scheduler([validator], [draft.address], "--max-k", str(MAX_K))
        other_scheduler = cluster.scheduler([validator], [other_draft.address])
        start_all(scheduler, other_scheduler)
        gateway, other_gateway = cluster.gateway(scheduler), cluster.gateway(other_scheduler)
        start_all(gateway, other_gateway)
        asyncio.run(until_drafts_ready(scheduler.address))
        workers = (validator, draft, other_draft)
        service = Service(gateway, scheduler, workers, other_gateway, other_scheduler, None)  # type: ignore[arg-type]  # the next line
        yield service._replace(expected=asyncio.run(service.complete(speculation=Speculation(k=0))))


# --- Requests -------------------------------------------------------------------------------------------


class BadRequest(NamedTuple):
    """One row: what is changed about a good request, and how it is refused."""

    name: str
    changes: dict[str, Any]
    field: str
    message: str
    code: grpc.StatusCode = INVALID
    reason: str = "INVALID_ARGUMENT"


def sampling(**changes: Any) -> dict[str, Any]:
    return {"sampling": SamplingParameters(**{"max_tokens": 8, **changes})}


REQUESTS = [
    BadRequest("unknown model", {"model": "nope"}, "model", "'nope' is not served", NOT_FOUND, "NOT_FOUND"),
    BadRequest("no input", {"prompt": None}, "prompt", "set prompt, chat or prompt_ids"),
    BadRequest("empty prompt", {"prompt": ""}, "prompt", "prompt is empty"),
    BadRequest("empty chat", {"prompt": Chat(())}, "chat.messages", "give at least one"),
    BadRequest("empty ids", {"prompt": PromptIds(())}, "prompt_ids", "give at least one"),
    BadRequest("an id outside", {"prompt": PromptIds((5, OUTSIDE))}, "prompt_ids", f"holds {OUTSIDE}"),
    BadRequest(
        "a prompt beyond the context", {"prompt": TOO_LONG}, "prompt", "shorten", reason="CONTEXT_EXCEEDED"
    ),
    BadRequest(
        "a chat beyond the context",
        {"prompt": Chat((ChatMessage("user", TOO_LONG),))},
        "chat",
        "shorten",
        reason="CONTEXT_EXCEEDED",
    ),
    BadRequest(
        "k above the limit", {"speculation": Speculation(k=MAX_K + 1)}, "speculation.k", "limit is 16"
    ),
    BadRequest("w above the limit", {"speculation": Speculation(w=9)}, "speculation.w", "1 to 8"),
    BadRequest("w of 0", {"speculation": Speculation(w=0)}, "speculation.w", "1 to 8"),
    BadRequest("top-p of 0", sampling(top_p=0.0), "sampling.top_p", "above 0"),
    BadRequest("top-p above 1", sampling(top_p=1.5), "sampling.top_p", "at most 1"),
    BadRequest("temperature below 0", sampling(temperature=-0.5), "sampling.temperature", "-0.5"),
    BadRequest("temperature that is none", sampling(temperature=math.nan), "sampling.temperature", "nan"),
    BadRequest("min-p above 1", sampling(min_p=1.5), "sampling.min_p", "1.5"),
    BadRequest(
        "repetition penalty of 0", sampling(repetition_penalty=0.0), "sampling.repetition_penalty", "0"
    ),
    BadRequest("no tokens", sampling(max_tokens=0), "sampling.max_tokens", "0"),
    BadRequest("a stop id outside", sampling(stop_ids=(OUTSIDE,)), "sampling.stop_ids", str(OUTSIDE)),
    BadRequest(
        "a bias of an id outside", sampling(logit_bias=((OUTSIDE, 1.0),)), "sampling.logit_bias", str(OUTSIDE)
    ),
    BadRequest("too many logprobs", sampling(logprobs=1000), "sampling.logprobs", "1000"),
    BadRequest("too many stop strings", {"stop": ("a",) * (MAX_STOPS + 1)}, "stop", "at most 16"),
    BadRequest("an empty stop string", {"stop": ("",)}, "stop", "empty"),
]


async def refusal_of(address: str, request: GenerateRequest) -> tuple[grpc.StatusCode, OutriderError]:
    """How the gateway refuses what our own client would not even send."""
    async with open_channel(address) as channel:
        call = inference_pb2_grpc.InferenceServiceStub(channel).Generate(encode_generate(request), timeout=60)
        try:
            async for event in call:
                pytest.fail(f"it was not refused: {event}")
        except grpc.aio.AioRpcError as error:
            return error.code(), error_from_rpc(error)
    pytest.fail("it ended without an error")


@pytest.mark.parametrize("row", REQUESTS, ids=lambda row: row.name)
async def test_a_bad_request_is_refused_by_the_gateway(service: Service, row: BadRequest):
    good = GenerateRequest(PROMPT, "", SamplingParameters(max_tokens=8), 1, (), Speculation(), 0)
    code, error = await refusal_of(service.gateway.address, replace(good, **row.changes))
    assert (code, error.reason) == (row.code, row.reason)
    assert error.field is not None
    assert error.field == row.field
    assert row.message in error.message
    assert "\n" not in error.message
    assert not error.retryable
    await service.still_works()


# --- The command line -----------------------------------------------------------------------------------


class BadCommand(NamedTuple):
    """One row: arguments of `outrider generate`, and how it ends."""

    name: str
    arguments: tuple[str, ...]
    message: str
    code: int = 1
    text: str = ""


COMMANDS = [
    BadCommand("empty prompt", ("",), "the prompt is empty", 2),
    BadCommand("nothing on standard input", ("-",), "standard input is empty", 2),
    BadCommand("prompt beyond the context", ("-",), "shorten chat", text=TOO_LONG),
    BadCommand("unknown model", ("x", "--model", "nope"), "'nope' is not served; ask for 'tiny'"),
    BadCommand("negative k", ("x", "--k", "-1"), "k is -1; give 0 or more"),
    BadCommand("k above the limit", ("x", "--k", "17"), "speculation.k is 17, the limit is 16"),
    BadCommand("top-p of 0", ("x", "--top-p", "0"), "top_p is 0.0"),
    BadCommand("no gateway", ("x", "--server", "127.0.0.1:1"), "no gateway answers at 127.0.0.1:1"),
    BadCommand("unknown source", ("x", "--source", "oracle"), "Invalid value for '--source'", 2),
    BadCommand("no number", ("x", "--temperature", "hot"), "Invalid value for '--temperature'", 2),
    BadCommand("unknown flag", ("x", "--modle", "y"), "No such option: --modle", 2),
    BadCommand("no prompt", (), "Missing argument", 2),
]


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
async def test_a_bad_command_ends_with_one_line(service: Service, row: BadCommand):
    result = await asyncio.to_thread(
        outrider, "generate", *row.arguments, text=row.text, OUTRIDER_SERVER=service.gateway.address
    )
    assert (result.returncode, result.stdout) == (row.code, "")
    *before, line = result.stderr.splitlines()
    assert line.lower().startswith("error: ")
    assert row.message in line
    # A usage error shows how the command is used.
    assert not before or before[0].startswith("Usage: ")
    await service.still_works()


# --- Starts ---------------------------------------------------------------------------------------------


class BadStart(NamedTuple):
    """One row: a process that must not start. {model}, {gguf}, {address} and {port} are filled in."""

    name: str
    command: tuple[str, ...]
    message: str
    environment: tuple[tuple[str, str], ...] = ()
    code: int = 2


VALIDATOR = ("services.validator", "--port", "0", "--model", "{model}")
SCHEDULER = ("services.scheduler", "--port", "0")
GATEWAY = ("gateway", "--port", "0")
UP = ("outrider.cli.main", "up", "--ports", "auto", "--log-dir", "{logs}", "--models", "{model}")
STARTS = [
    BadStart("unknown model", (*VALIDATOR, "--model", "nope"), "'nope' is not a file, a folder, a hub id"),
    BadStart(
        "truncated GGUF", (*VALIDATOR, "--model", "{gguf}"), "cut.gguf cannot be read; it may be truncated"
    ),
    BadStart("no model", VALIDATOR[:3], "--model"),
    BadStart("validator's port in use", (*VALIDATOR, "--port", "{port}"), "cannot listen on {address}"),
    BadStart(
        "gateway's port in use", (*GATEWAY, "--scheduler", "{scheduler}", "--port", "{port}"), "{address}"
    ),
    BadStart("scheduler's port in use", (*SCHEDULER, "--port", "{port}"), "cannot listen on {address}"),
    BadStart(
        "rows that are too few", (*VALIDATOR, "--token-budget", "7"), "--token-budget (OUTRIDER_TOKEN_BUDGET)"
    ),
    BadStart("no number", VALIDATOR, "OUTRIDER_MAX_SESSIONS", (("OUTRIDER_MAX_SESSIONS", "many"),)),
    BadStart("negative k", (*SCHEDULER, "--max-k", "-1"), "--max-k (OUTRIDER_MAX_K) is '-1'"),
    BadStart("no address", (*SCHEDULER, "--validators", "here"), "'here' is no address"),
    BadStart("no scheduler", (*GATEWAY, "--scheduler", "here"), "--scheduler (OUTRIDER_SCHEDULER)"),
    BadStart("unknown flag", (*GATEWAY, "--modle", "x"), "--modle"),
    BadStart("no log level", GATEWAY, "OUTRIDER_LOG_LEVEL", (("OUTRIDER_LOG_LEVEL", "loud"),)),
    BadStart("no exporter", GATEWAY, "OTEL_TRACES_EXPORTER", (("OTEL_TRACES_EXPORTER", "zipkin"),)),
    BadStart("up: unknown model", (*UP, "--models", "nope"), "'nope' is not a file, a folder", code=1),
    BadStart("up: the same draft twice", (*UP, "--models", "a,b,b"), "each of them once", code=1),
    BadStart("up: port in use", (*UP, "--ports", "{port}"), "cannot use {address}", code=1),
    BadStart("up: no validator", (*UP, "--validators", "0"), "--validators"),
]


@pytest.fixture(scope="module")
def starts(
    service: Service, target: Path, smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[subprocess.Popen[str], str]]]:
    """All of them side by side, by name, each with the message that is due."""
    folder = tmp_path_factory.mktemp("starts")
    with smollm2_path.open("rb") as whole:
        (folder / "cut.gguf").write_bytes(whole.read(4_000_000))
    filled = {
        "model": target,
        "gguf": folder / "cut.gguf",
        "logs": folder / "logs",
        "scheduler": service.scheduler.address,
        "address": service.gateway.address,
        "port": service.gateway.address.rpartition(":")[2],
    }
    begun = {}
    for row in STARTS:
        module, *arguments = (part.format(**filled) for part in row.command)
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, **SMALL, **dict(row.environment)},
            cwd=SOURCE_FOLDER,
        )
        begun[row.name] = process, row.message.format(**filled)
    yield begun
    for process, _ in begun.values():
        process.kill()
        process.communicate()


@pytest.mark.parametrize("row", STARTS, ids=lambda row: row.name)
async def test_a_bad_start_ends_with_one_line(
    service: Service, starts: dict[str, tuple[subprocess.Popen[str], str]], row: BadStart
):
    process, message = starts[row.name]
    _, errors = await asyncio.to_thread(process.communicate, timeout=120)
    assert process.returncode == row.code, errors
    *before, line = errors.splitlines()
    assert message in line
    assert line.lower().startswith(("outrider-", "error: "))
    for each in before:  # a log, or how the command is used
        assert each.startswith(("{", "Usage: ", "Try ")) or not each
    await service.still_works()


# --- A wrong pair ---------------------------------------------------------------------------------------


async def test_c41_a_draft_with_another_tokenizer_is_refused_and_the_answer_is_the_same(
    service: Service, target: Path
):
    """The scheduler names the first id that differs: to whoever asks, in the answer, and in its log."""
    completion = await service.complete(
        service.other_gateway, speculation=Speculation(source=DraftSource.MODEL)
    )
    assert completion.token_ids == service.expected.token_ids
    assert completion.text == service.expected.text
    token = Tokenizer.from_file(str(target / "tokenizer.json")).id_to_token
    first, second = token(SWAPPED), token(SWAPPED + 1)
    named = f"id {SWAPPED} is {first!r} in the first and {second!r} in the second"
    (draft,) = (await state_of(service.other_scheduler.address)).drafts
    assert draft.status is WorkerStatus.REFUSED
    assert named in draft.reason
    assert "tiny has 400 ids" in draft.reason
    assert completion.final.draft_status == f"refused:{draft.reason}"
    assert completion.final.counters.missed_proposals > 0
    logged = [json.loads(line) for line in service.other_scheduler.log.splitlines()]
    assert [entry for entry in logged if named in str(entry.get("reason"))]
    await service.still_works()
