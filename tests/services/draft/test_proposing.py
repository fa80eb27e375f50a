"""Proposals against their definition, over the fake runtime that checks every key it is asked for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from outrider.sampling import DraftTree, SamplingParameters, TokenSampler
from outrider.wire.draft import Propose
from outrider.wire.generation import DraftSource
from outrider.wire.worker import Header, Resume, SessionError, Stale
from services.draft.role import Drafting
from tests.support.fake_runtime import FakeRuntime
from tests.support.worker_streams import LIMITS, draft_session, seam

PROMPT = (5, 9, 11, 7)
SAMPLED = SamplingParameters(temperature=0.8, frequency_penalty=0.3)


def chain_of(
    runtime: FakeRuntime,
    tokens: Sequence[int],
    k: int,
    *,
    sampling: SamplingParameters = SAMPLED,
    end_ids: tuple[int, ...] = (),
    prompt_length: int = len(PROMPT),
    first: int = 0,
    min_confidence: float = 0.0,
) -> list[int]:
    """Token by token from the definition; `first` is the rank of the first one."""
    sampler = TokenSampler(
        sampling,
        seed=7,
        tokens=tokens,
        prompt_length=prompt_length,
        end_ids=frozenset(end_ids),
        vocab_size=runtime.vocab_size,
    )
    ids: list[int] = []
    confidence = 1.0
    while len(ids) < k and not (ids and (ids[-1] in end_ids or confidence < min_confidence)):
        each = sampler.rank(runtime.logits(sampler.tokens), first + 1)[first if not ids else 0]
        sampler.append(each.token)
        ids.append(each.token)
        confidence *= each.confidence
    return ids


@pytest.mark.parametrize("k", [1, 2, 5])
async def test_c52_each_draft_starts_from_the_whole_committed_prefix(k: int):
    """Committed ids agree with the draft's guesses for a random length, and differ behind it."""
    runtime = FakeRuntime(salt="draft")
    rng = random.Random(k)
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, SAMPLED)
        session.open()
        await session.opened()
        committed: list[int] = []
        for _ in range(25):
            proposal = await session.propose(committed, k)
            assert list(proposal.tree.tokens) == chain_of(runtime, session.tokens, k)
            assert proposal.tree.is_chain
            assert proposal.sources == (DraftSource.MODEL,) * k
            assert len(proposal.logprobs) == k
            assert all(logprob <= 0 for logprob in proposal.logprobs)
            agreed = rng.randrange(k + 1)
            committed = [*proposal.tree.tokens[:agreed], rng.randrange(runtime.vocab_size)]


async def test_c49_the_kv_is_cut_back_and_not_rebuilt():
    runtime = FakeRuntime(salt="draft")
    prompt = tuple(range(3, 33))
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, prompt, SAMPLED)
        session.open()
        await session.opened()
        proposal = await session.propose((), 4)
        first = len(runtime.steps)
        # Nothing was accepted: one committed token is read, then three of the four that are drafted.
        await session.propose([(proposal.tree.tokens[0] + 1) % 40], 4)
        assert runtime.steps[first:] == [[1], [1], [1], [1]]


async def test_several_candidates_branch_at_the_first_position_and_go_on_as_chains():
    runtime = FakeRuntime(salt="draft")
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, SAMPLED)
        session.open()
        await session.opened()
        committed: list[int] = []
        for chosen in (0, 1, 2, 0):
            proposal = await session.propose(committed, 3, w=3)
            wanted = [chain_of(runtime, session.tokens, 3, first=rank) for rank in range(3)]
            assert sorted(proposal.tree.candidates()) == sorted(tuple(path) for path in wanted)
            assert len(proposal.logprobs) == len(proposal.sources) == 9
            committed = [*wanted[chosen][: chosen + 1], 3]


async def test_c14_nothing_is_proposed_behind_an_end_id():
    runtime = FakeRuntime(salt="draft")
    free = chain_of(runtime, PROMPT, 8)
    end_id = next(token for index, token in enumerate(free) if index > 1 and token not in free[:index])
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, SAMPLED, end_ids=(end_id,))
        session.open()
        await session.opened()
        proposal = await session.propose((), 8)
        assert list(proposal.tree.tokens) == free[: free.index(end_id) + 1]
        wide = await session.propose((), 8, w=2)
        for candidate in wide.tree.candidates():
            assert end_id not in candidate[:-1]
        assumed = await session.propose((), 8, assumed=tuple(free[: free.index(end_id) + 1]))
        assert assumed.tree.num_nodes == 0


@pytest.mark.parametrize("w", [1, 3])
@pytest.mark.parametrize("sampling", [SAMPLED, SamplingParameters(temperature=0.0), SamplingParameters()])
async def test_a_candidate_ends_where_confidence_is_used_up(sampling: SamplingParameters, w: int):
    """The token that uses it up is proposed still, so every candidate is a prefix of what k alone gives."""
    runtime = FakeRuntime(salt="draft")
    lengths: set[int] = set()
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, sampling)
        session.open()
        await session.opened()
        for step, threshold in enumerate((0.0, 0.01, 0.1, 0.3, 0.5, 0.6, 0.9, 0.99, 1.0)):
            proposal = await session.propose([3 + step], 6, w=w, min_confidence=threshold)
            wanted = [
                chain_of(runtime, session.tokens, 6, sampling=sampling, first=rank, min_confidence=threshold)
                for rank in range(w)
            ]
            assert sorted(proposal.tree.candidates()) == sorted(tuple(path) for path in wanted)
            assert len(proposal.logprobs) == len(proposal.sources) == proposal.tree.num_nodes
            lengths.update(len(path) for path in wanted)
    assert {1, 6} <= lengths
    assert len(lengths) > 2


async def test_confidence_begins_anew_behind_a_prefix():
    runtime = FakeRuntime(salt="draft")
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, SAMPLED)
        session.open()
        await session.opened()
        proposal = await session.propose((), 6, prefix=(8, 6), min_confidence=0.2)
        wanted = chain_of(runtime, (*PROMPT, 8, 6), 4, min_confidence=0.2)
        assert list(proposal.tree.tokens) == wanted


async def test_prefix_counts_in_k_and_assumed_does_not():
    runtime = FakeRuntime(salt="draft")
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, SAMPLED)
        session.open()
        await session.opened()
        proposal = await session.propose((), 4, prefix=(8, 6), assumed=(12,))
        assert list(proposal.tree.tokens) == chain_of(runtime, (*PROMPT, 12, 8, 6), 2)
        # The assumption was wrong: it leaves no trace.
        proposal = await session.propose((13,), 4)
        assert list(proposal.tree.tokens) == chain_of(runtime, (*PROMPT, 13), 4)
        assert (await session.propose((), 2, prefix=(8, 6))).tree.num_nodes == 0


async def test_c45_c46_beyond_the_drafts_own_context_proposals_are_empty():
    runtime = FakeRuntime(salt="draft", context_length=12)
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        too_long = draft_session(stream, tuple(range(3, 23)), SAMPLED)
        too_long.open()
        await too_long.opened()
        assert (await too_long.propose((), 4)).tree.num_nodes == 0
        session = draft_session(stream, PROMPT, SAMPLED)
        session.open()
        await session.opened()
        depths = [(await session.propose([3] if length else [], 4)).tree.num_nodes for length in range(12)]
        # 4 .. 9 tokens leave room for four; then one less each time.
        assert depths == [4, 4, 4, 4, 4, 4, 3, 2, 1, 0, 0, 0]
        assert (await too_long.propose([3], 4)).tree.num_nodes == 0


async def test_c39_ids_that_only_the_target_knows_end_drafting_and_nothing_else():
    runtime = FakeRuntime(salt="draft")
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, SAMPLED)
        session.open()
        await session.opened()
        proposal = await session.propose((), 4)
        assert all(0 <= token < runtime.vocab_size for token in proposal.tree.tokens)
        assert (await session.propose((43,), 4)).tree.num_nodes == 0
        assert (await session.propose((3,), 4)).tree.num_nodes == 0
        assert (await session.propose((), 4, prefix=(55,))).tree.num_nodes == 0


async def test_c60_a_commit_that_does_not_continue_concerns_its_session_alone():
    runtime = FakeRuntime(salt="draft")
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        good, bad, hostile = (draft_session(stream, PROMPT, SAMPLED) for _ in range(3))
        for session in (good, bad, hostile):
            session.open()
            await session.opened()
        bad.tokens.extend((1, 2, 3))  # the draft never got these
        bad.ask((4,), 4)
        header, event = await stream.next(bad.id)
        assert isinstance(event, Stale)
        assert (header.epoch, header.base_length) == (1, len(PROMPT))
        hostile.ask((-1,), 4)
        event = (await stream.next(hostile.id)).event
        assert isinstance(event, SessionError)
        assert event.failure.reason == "INVALID_ARGUMENT"
        proposal = await good.propose((3,), 4)
        assert list(proposal.tree.tokens) == chain_of(runtime, good.tokens, 4)


async def test_c59_a_newer_round_gives_up_the_one_before():
    """The peer has moved on: it gets an empty proposal at once, and the new round is drafted."""
    runtime = FakeRuntime(salt="draft")
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, SAMPLED)
        session.open()
        await session.opened()
        headers = []
        for committed in ((), (3,), (4, 6)):
            session.ask(committed, 64)
            headers.append(session.header())
        answers = [await stream.next(session.id) for _ in headers]
        assert [answer.header for answer in answers] == headers
        assert list(answers[-1].event.tree.tokens) == chain_of(runtime, session.tokens, 64)
        assert runtime.num_free_pages < runtime.num_pages


async def test_a_round_that_is_sent_again_after_resume_commits_once():
    runtime = FakeRuntime(salt="draft")
    peer = b"p" * 16
    async with seam(runtime, Drafting) as worker:
        async with worker.connect(peer) as stream:
            session = draft_session(stream, PROMPT, SAMPLED)
            session.open()
            await session.opened()
            session.ask((3, 4), 4)
            await worker.settled()
        async with worker.connect(peer) as stream:
            session.stream = stream
            session.epoch = 2
            # The peer's own mirror is where it was before the round.
            before = session.tokens[:-2]
            stream.send((Header(session.id, 2, 0, len(before)), Resume()))
            stream.send((session.header(), Propose((3, 4), 4)))
            proposal = await session.proposal()
            assert list(proposal.tree.tokens) == chain_of(runtime, session.tokens, 4)
            assert stream.num_unread(session.id) == 0


async def test_c79_close_frees_the_drafts_pages():
    runtime = FakeRuntime(salt="draft")
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        sessions = [draft_session(stream, PROMPT, SAMPLED) for _ in range(5)]
        for session in sessions:
            session.open()
            await session.opened()
            await session.propose((), 3, w=2)
        assert runtime.num_free_pages == runtime.num_pages - 5
        for session in sessions:
            session.close()
        await worker.settled()
        assert runtime.num_free_pages == runtime.num_pages


@pytest.mark.parametrize("threshold", [0.0, 0.1])
@pytest.mark.parametrize("w", [1, 3])
async def test_preempted_proposals_are_the_same(w: int, threshold: float):
    """Room for two sessions of three: KV comes and goes in the middle of proposals."""
    runtime = FakeRuntime(salt="draft", num_pages=3)
    prompts: list[Sequence[int]] = [tuple(3 + (i * j) % 30 for j in range(50)) for i in (1, 2, 3)]
    async with seam(runtime, Drafting) as worker, worker.connect() as stream:
        sessions = [draft_session(stream, prompt, SAMPLED) for prompt in prompts]
        for session in sessions:
            session.open()
            await session.opened()
        for _ in range(8):
            for session in sessions:
                session.ask([3], 6, w=w, min_confidence=threshold)
            for session in sessions:
                proposal = await session.proposal()
                wanted = [
                    tuple(
                        chain_of(
                            runtime,
                            session.tokens,
                            6,
                            prompt_length=50,
                            first=rank,
                            min_confidence=threshold,
                        )
                    )
                    for rank in range(w)
                ]
                assert sorted(proposal.tree.candidates()) == sorted(wanted)


async def test_reload_swaps_the_model_under_open_sessions():
    old, new = FakeRuntime(salt="old"), FakeRuntime(salt="new")
    async with seam(old, Drafting, limits=LIMITS) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, SAMPLED)
        session.open()
        await session.opened()
        proposal = await session.propose((), 4)
        assert proposal.model_version == "version-old"
        await worker.engine.swap(as_runtime(new))
        proposal = await session.propose(proposal.tree.tokens[:2], 4)
        assert list(proposal.tree.tokens) == chain_of(new, session.tokens, 4)
        assert proposal.model_version == "version-new"


async def test_reload_to_other_ids_ends_sessions_and_streams():
    old, new = FakeRuntime(salt="old"), FakeRuntime(salt="new", ids="other")
    async with seam(old, Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, SAMPLED)
        session.open()
        await session.opened()
        await worker.engine.swap(as_runtime(new))
        event = (await stream.next(session.id)).event
        assert isinstance(event, SessionError)
        assert event.failure.reason == "UNAVAILABLE"
        await stream.ended.wait()
        async with worker.connect() as again:
            assert again.welcome.info.tokenizer_fingerprint == "other"


async def test_nothing_is_wanted_with_k_0():
    async with seam(FakeRuntime(), Drafting) as worker, worker.connect() as stream:
        session = draft_session(stream, PROMPT, SAMPLED)
        session.open()
        await session.opened()
        assert (await session.propose((), 0)).tree == DraftTree.empty()


def as_runtime(fake: FakeRuntime) -> Any:
    return fake
