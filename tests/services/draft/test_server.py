"""The draft as a process would serve it: real server, real stream, real (tiny) models."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from outrider.runtime.loading import load_runtime
from outrider.runtime.runtime import Runtime
from outrider.runtime.sequence import Segment
from outrider.sampling import SamplingParameters, TokenSampler
from outrider.v1 import worker_pb2_grpc
from outrider.wire.draft import OpenDraft, Proposal, Propose
from outrider.wire.worker_calls import decode_model_info, reload_request
from services.draft.server import serve
from services.draft.settings import DraftSettings
from tests.support.models import tiny_model
from tests.support.worker_streams import draft_session
from tests.support.worker_wire import channel_to, draft_stream, serving

PROMPTS = [tuple(random.Random(seed).randrange(3, 400) for _ in range(10 + 40 * seed)) for seed in range(4)]
SAMPLED = SamplingParameters(temperature=0.8, presence_penalty=0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("draft"), seed=2)


def settings_for(folder: Path, dtype: str = "bfloat16", **changes: object) -> DraftSettings:
    values = {"port": 0, "num_threads": 1, "kv_budget_mib": 1, "prefill_chunk": 64, "grace_s": 0.2, **changes}
    return DraftSettings.model_validate({"model": str(folder), "dtype": dtype, **values})


@asynccontextmanager
async def served(settings: DraftSettings) -> AsyncIterator[grpc.aio.Channel]:
    async with serving(serve, settings) as address, channel_to(address) as channel:
        yield channel


class Reference:
    """The draft's choices from their definition, each from a prefill of its own."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self._runtime: Runtime = load_runtime(str(folder), dtype=dtype, num_threads=1)

    def candidates(self, tokens: Sequence[int], prompt_length: int, k: int, w: int) -> list[tuple[int, ...]]:
        info = self._runtime.info
        paths: list[tuple[int, ...]] = []
        for rank in range(w):
            sampler = TokenSampler(
                SAMPLED,
                seed=7,
                tokens=tokens,
                prompt_length=prompt_length,
                end_ids=frozenset(),
                vocab_size=info.vocab_size,
            )
            for depth in range(k):
                ranked = sampler.rank(self._logits(sampler.tokens), w)
                sampler.append(ranked[0 if depth else rank][0])
            paths.append(sampler.tokens[len(tokens) :])
        return sorted(paths)

    def _logits(self, tokens: Sequence[int]) -> np.ndarray:
        sequence = self._runtime.new_sequence()
        self._runtime.reserve(sequence, len(tokens))
        row: np.ndarray = self._runtime.step([Segment(sequence, tuple(tokens), wanted=(len(tokens) - 1,))])[
            0
        ][0]
        self._runtime.release(sequence)
        return row


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("w", [1, 3])
async def test_c52_c53_proposals_follow_from_the_committed_prefix_alone(folder: Path, dtype: str, w: int):
    """With neighbours, after refusals at any depth, and with memory for a part of the sessions."""
    reference = Reference(folder, dtype)
    async with served(settings_for(folder, dtype)) as channel, draft_stream(channel) as stream:

        async def run(seed: int) -> None:
            rng = random.Random(seed)
            prompt = PROMPTS[seed]
            session = draft_session(stream, prompt, SAMPLED)
            session.open()
            await session.opened()
            committed: list[int] = []
            for _ in range(6):
                k = rng.randrange(1, 6)
                proposal = await session.propose(committed, k, w=w)
                wanted = reference.candidates(session.tokens, len(prompt), k, w)
                assert sorted(proposal.tree.candidates()) == wanted
                path = rng.choice(proposal.tree.candidates())
                committed = [*path[: rng.randrange(k + 1)], rng.randrange(3, 400)]

        async with asyncio.TaskGroup() as tasks:
            for seed in range(len(PROMPTS)):
                tasks.create_task(run(seed))


async def test_first_round_may_come_inside_open(folder: Path):
    reference = Reference(folder, "bfloat16")
    async with served(settings_for(folder)) as channel, draft_stream(channel) as stream:
        session = draft_session(stream, PROMPTS[0], SAMPLED)
        session.opening = OpenDraft(
            PROMPTS[0], len(PROMPTS[0]), SAMPLED, 7, first=Propose(committed=(8,), k=3)
        )
        session.round, session.tokens = 1, [*PROMPTS[0], 8]
        session.open()
        await session.opened()
        proposal = await session.proposal()
        assert list(proposal.tree.candidates()) == reference.candidates(session.tokens, len(PROMPTS[0]), 3, 1)
        assert proposal.timings.num_forwards == 3
        assert proposal.timings.rows == 1


async def test_reload_swaps_the_model_and_sessions_go_on(folder: Path, tmp_path: Path):
    other = tiny_model(tmp_path / "other", seed=5)
    before, after = Reference(folder, "bfloat16"), Reference(other, "bfloat16")
    async with served(settings_for(folder)) as channel, draft_stream(channel) as stream:
        session = draft_session(stream, PROMPTS[1], SAMPLED)
        session.open()
        await session.opened()
        first = await session.propose((), 4)
        assert list(first.tree.candidates()) == before.candidates(session.tokens, len(PROMPTS[1]), 4, 1)
        calls = worker_pb2_grpc.WorkerServiceStub(channel)
        info = decode_model_info(await calls.Reload(reload_request(str(other))))
        second: Proposal = await session.propose((9,), 4)
        assert second.model_version == info.model_version != first.model_version
        assert list(second.tree.candidates()) == after.candidates(session.tokens, len(PROMPTS[1]), 4, 1)


async def test_a_model_that_keeps_no_exact_promise_may_draft(tmp_path: Path):
    folder = tiny_model(tmp_path / "moe", "moe")
    async with served(settings_for(folder)) as channel, draft_stream(channel) as stream:
        session = draft_session(stream, PROMPTS[0], SAMPLED)
        session.open()
        await session.opened()
        assert (await session.propose((), 4)).tree.num_nodes == 4
