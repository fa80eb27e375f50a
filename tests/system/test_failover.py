"""Two of each behind one gateway: whichever process is killed, every answer is what it would have been."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest

from outrider.client import Completion, OutriderClient, SamplingParameters, Speculation
from outrider.wire.state import SchedulerState, WorkerState, WorkerStatus
from tests.support.calls import state_of, until_drafts_ready
from tests.support.command_line import Up
from tests.support.deployment import Answer, Question, until
from tests.support.models import tiny_model, with_noise

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes die with their parent there alone"
)

SMALL = {"OUTRIDER_NUM_THREADS": "1", "OUTRIDER_KV_BUDGET_MIB": "16", "OUTRIDER_DTYPE": "float32"}
PROMPTS = ("The zebra runs past the old mill.", "def fibonacci(n):", "{", "Seven ships and a lighthouse")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("models")
    target = tiny_model(folder / "target")
    draft = with_noise(target, folder / "draft", scale=0.1)
    numbers = ("--validators", "2", "--drafts", "2", "--schedulers", "2")
    with Up(folder / "up", ("--models", f"{target},{draft}", *numbers), SMALL) as started:
        started.wait_until_ready()
        for scheduler in ("scheduler-1", "scheduler-2"):
            asyncio.run(until_drafts_ready(started.address(scheduler)))
        yield started


@pytest.fixture(scope="module")
def alone(up: Up) -> list[Completion]:
    """Each answer without drafts, by itself, before anything was killed."""

    async def ask() -> list[Completion]:
        async with OutriderClient(up.gateway) as client:
            return [await _alone(client, question(index, 0)) for index in range(len(PROMPTS))]

    return asyncio.run(ask())


def question(index: int, k: int) -> Question:
    sampling = SamplingParameters(
        max_tokens=160, ignore_eos=True, temperature=(0.0, 0.8)[index % 2], logprobs=1
    )
    return Question(PROMPTS[index], sampling, seed=7 + index, k=k)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("role", ["draft", "validator", "scheduler"])
async def test_c61_any_process_may_be_killed(up: Up, alone: list[Completion], role: str, number: int) -> None:
    # What an earlier test killed of another role may be on its way back still.
    await _all_ready(up, role)
    async with OutriderClient(up.gateway) as client:
        answers = [Answer(client, question(index, 3)) for index in range(len(PROMPTS))]
        for answer in answers:
            await answer.rounds(2)
        os.kill(up.pids[f"{role}-{number}"], signal.SIGKILL)
        found = [await answer.completion() for answer in answers]
        # Those that are there go on with new sessions, too.
        after = await Answer(client, question(0, 3)).completion()
    for one, other in zip(alone, found, strict=True):
        assert other.token_ids == one.token_ids
        assert other.text == one.text
        assert [each.logprob for each in other.logprobs] == [each.logprob for each in one.logprobs]
        assert other.final.completion_tokens == one.final.completion_tokens
        assert not other.final.changed_replica
    assert after.token_ids == alone[0].token_ids
    # Both of a role had sessions; a draft's go on in the same rounds.
    assert role == "draft" or any(each.final.counters.reopens for each in found)


async def _alone(client: OutriderClient, asked: Question) -> Completion:
    return await client.complete(
        asked.prompt, sampling=asked.sampling, seed=asked.seed, speculation=Speculation(k=0), store=False
    )


async def _all_ready(up: Up, *roles: str) -> None:
    """Wait until both of these roles are there, as both schedulers see it."""

    async def are_ready() -> bool:
        states = [await _state(up.address(f"scheduler-{number}")) for number in (1, 2)]
        return all(
            state is not None and all(worker.status is WorkerStatus.READY for worker in _of(state, roles))
            for state in states
        )

    await until(are_ready)


def _of(state: SchedulerState, roles: Sequence[str]) -> list[WorkerState]:
    validators = state.validators if "validator" in roles else ()
    return [*validators, *(state.drafts if "draft" in roles else ())]


async def _state(address: str) -> SchedulerState | None:
    try:
        return await state_of(address)
    except grpc.aio.AioRpcError:
        return None


async def test_what_was_killed_is_started_again_and_found(up: Up) -> None:
    await _all_ready(up, "validator", "draft")


async def test_the_ready_file_names_all(up: Up) -> None:
    names = {"gateway", *(f"{role}-{n}" for role in ("scheduler", "validator", "draft") for n in (1, 2))}
    assert set(up.pids) == names


def test_the_folder_has_a_log_of_each(up: Up) -> None:
    logs = {path.stem for path in Path(up.folder / "logs").glob("*.log")}
    assert {"scheduler-2", "draft-2", "validator-2"} <= logs
