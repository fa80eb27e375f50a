"""Verdicts against plain decoding by definition, over the fake runtime that checks every key."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.sampling import DraftTree, FinishReason, SamplingParameters
from services.validator.role import Validating
from services.validator.rounds import fitted
from tests.support.fake_runtime import FakeRuntime
from tests.support.worker_streams import Answer, Drafter, expected, seam, target_session

PROMPT = (5, 9, 11, 7)
GREEDY = SamplingParameters(temperature=0.0, max_tokens=40, logprobs=2)
SAMPLED = SamplingParameters(temperature=0.9, max_tokens=40, presence_penalty=0.4, min_tokens=6, logprobs=0)


def plain(runtime: FakeRuntime, prompt: Sequence[int], sampling: SamplingParameters) -> Answer:
    info = runtime.info
    return expected(
        runtime.logits,
        prompt,
        sampling,
        vocab_size=info.vocab_size,
        eos_ids=info.eos_ids,
        context_length=info.context_length,
    )


def oracle(answer: Answer, prompt: Sequence[int], k: int, *, wrong_at: int | None = None) -> Drafter:
    """Drafts what will come; at index `wrong_at` of each round something else."""

    def draft(tokens: Sequence[int]) -> DraftTree:
        done = len(tokens) - len(prompt)
        ids = list(answer.ids[done : done + k])
        if wrong_at is not None and wrong_at < len(ids):
            ids[wrong_at] = (ids[wrong_at] + 1) % 40
        return DraftTree.chain(ids)

    return draft


def bushy(answer: Answer, prompt: Sequence[int], k: int, seed: int) -> Drafter:
    """A tree with the right path somewhere in it, right for a random length."""
    rng = random.Random(seed)

    def draft(tokens: Sequence[int]) -> DraftTree:
        done = len(tokens) - len(prompt)
        truth = answer.ids[done : done + k]
        candidates = [[rng.randrange(-3, 60) for _ in range(k)] for _ in range(3)]
        right = rng.randrange(k + 1)
        candidates.append([*truth[:right], *(rng.randrange(40) for _ in range(k - right))])
        rng.shuffle(candidates)
        return DraftTree.from_candidates(candidates)

    return draft


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("k", [0, 1, 2, 5, 8])
async def test_c01_c03_ids_and_logprobs_do_not_depend_on_the_draft(k: int, sampling: SamplingParameters):
    runtime = FakeRuntime()
    reference = plain(runtime, PROMPT, sampling)
    assert len(set(reference.ids)) > 10
    drafters = [
        oracle(reference, PROMPT, k),
        *(oracle(reference, PROMPT, k, wrong_at=index) for index in range(k)),
        *(bushy(reference, PROMPT, k, seed) for seed in range(3) if k),
    ]
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        for drafter in drafters:
            answer = await target_session(stream, PROMPT, sampling).run(drafter)
            assert answer.ids == reference.ids
            assert answer.logprobs == reference.logprobs
    assert runtime.num_free_pages == runtime.num_pages


@pytest.mark.parametrize("wrong_at", [0, 1, 2, 3, None])
async def test_c49_c50_rejection_at_each_index_has_exact_counts(wrong_at: int | None):
    runtime = FakeRuntime(eos_ids=())
    sampling = SamplingParameters(temperature=0.0, max_tokens=41)
    reference = plain(runtime, PROMPT, sampling)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, sampling)
        await session.run(max_rounds=1)
        rows_before = len(runtime.steps)
        answer = await session.run(oracle(reference, PROMPT, 4, wrong_at=wrong_at))
    accepted = 4 if wrong_at is None else wrong_at
    full_rounds = [verdict for verdict in answer.verdicts[1:] if verdict.drafted == 4]
    assert full_rounds
    for verdict in full_rounds:
        assert (verdict.accepted, verdict.raw_accepted) == (accepted, accepted)
        assert verdict.path == tuple(range(accepted))
        assert len(verdict.committed) == accepted + 1
    # The KV is cut back, not rebuilt: a round reads the one committed token that it lacks, and its draft.
    assert all(rows[0] <= 5 for rows in runtime.steps[rows_before:])
    assert sum(len(verdict.committed) for verdict in answer.verdicts) == 41


async def test_c07_c09_c72_a_block_is_cut_right_after_its_first_end_id():
    prompt = PROMPT
    runtime = FakeRuntime(eos_ids=())
    free = plain(runtime, prompt, SamplingParameters(temperature=0.0, max_tokens=8))
    end_at = next(index for index in range(2, 6) if free.ids.index(free.ids[index]) == index)
    sampling = SamplingParameters(temperature=0.0, max_tokens=30, stop_ids=(free.ids[end_at],))
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, prompt, sampling)
        session.open(DraftTree.chain(free.ids))
        await session.opened()
        verdict = await session.verdict()
    assert verdict.committed == tuple(free.ids[: end_at + 1])
    assert verdict.finish_reason is FinishReason.STOP
    # No bonus behind the end; what matched behind it is counted apart.
    assert verdict.accepted == end_at + 1
    assert verdict.raw_accepted == 8
    assert runtime.num_free_pages == runtime.num_pages


async def test_c14_no_bonus_follows_an_accepted_end_id():
    runtime = FakeRuntime(eos_ids=())
    first = plain(runtime, PROMPT, SamplingParameters(temperature=0.0, max_tokens=1)).ids[0]
    sampling = SamplingParameters(temperature=0.0, stop_ids=(first,))
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, sampling)
        session.open(DraftTree.chain([first]))
        await session.opened()
        verdict = await session.verdict()
    assert (verdict.committed, verdict.accepted) == ((first,), 1)
    assert verdict.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("tree", ["chain", "tree"])
async def test_c44_the_depth_is_bounded_by_context_and_max_tokens(tree: str):
    for sampling, length in (
        (SamplingParameters(temperature=0.0, max_tokens=100), 16),
        (SamplingParameters(temperature=0.0, max_tokens=9), 9),
    ):
        runtime = FakeRuntime(context_length=20, eos_ids=())
        reference = plain(runtime, PROMPT, sampling)
        assert len(reference.ids) == length
        right = [*reference.ids, *([1] * 12)]

        def drafter(tokens: Sequence[int], right: list[int] = right) -> DraftTree:
            path = right[len(tokens) - len(PROMPT) :][:8]
            return DraftTree.chain(path) if tree == "chain" else DraftTree.from_candidates([[3, 4], path])

        async with seam(runtime, Validating) as worker, worker.connect() as stream:
            answer = await target_session(stream, PROMPT, sampling).run(drafter)
        assert answer.ids == reference.ids
        last = answer.verdicts[-1]
        assert last.finish_reason is FinishReason.LENGTH
        done = length - len(last.committed)
        assert last.accepted <= length - done - 1


async def test_c43_ids_outside_the_vocabulary_cost_speed_only():
    runtime = FakeRuntime()
    reference = plain(runtime, PROMPT, GREEDY)

    def hostile(tokens: Sequence[int]) -> DraftTree:
        right = reference.ids[len(tokens) - len(PROMPT)]
        return DraftTree((-7, 2**31 - 1, right, 40, 47, 3), (-1, -1, -1, 2, 3, 0))

    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        answer = await target_session(stream, PROMPT, GREEDY).run(hostile)
    assert answer.ids == reference.ids
    for verdict in answer.verdicts[:-1]:
        assert (verdict.drafted, verdict.path) == (1, (2,))


async def test_c64_a_tree_beyond_the_limits_is_clamped():
    runtime = FakeRuntime(eos_ids=())
    sampling = SamplingParameters(temperature=0.0, max_tokens=200)
    reference = plain(runtime, PROMPT, sampling)
    deep = DraftTree.chain(reference.ids[:100])
    wide = DraftTree(tuple([3] * 400), tuple([-1] * 400))
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, sampling)
        session.open(deep)
        await session.opened()
        assert (await session.verdict()).drafted == 64
        session.verify(wide)
        assert (await session.verdict()).drafted == 256
    assert session.answer.ids == reference.ids[: len(session.answer.ids)]


async def test_prefill_only_marks_the_first_round_without_a_draft():
    runtime = FakeRuntime(eos_ids=())
    sampling = SamplingParameters(temperature=0.0, max_tokens=6)
    reference = plain(runtime, PROMPT, sampling)
    async with seam(runtime, Validating) as worker, worker.connect() as stream:
        undrafted = await target_session(stream, PROMPT, sampling).run()
        drafted = await target_session(stream, PROMPT, sampling).run(oracle(reference, PROMPT, 2))
    assert [verdict.prefill_only for verdict in undrafted.verdicts] == [True] + [False] * 5
    assert not any(verdict.prefill_only for verdict in drafted.verdicts)


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"tokens": ()}, "INVALID_ARGUMENT", "prompt is empty"),
        ({"tokens": (5, 40), "prompt_length": 1}, "INVALID_ARGUMENT", "token id 40"),
        ({"tokens": (5, -1), "prompt_length": 1}, "INVALID_ARGUMENT", "token id -1"),
        ({"tokens": tuple([3] * 512)}, "CONTEXT_EXCEEDED", "at most 511"),
        ({"prompt_length": 0}, "INVALID_ARGUMENT", "prompt_length is 0"),
        ({"prompt_length": 9}, "INVALID_ARGUMENT", "prompt_length is 9"),
        ({"numerics_id": "another"}, "FAILED_PRECONDITION", "numerics id another"),
        ({"sampling": SamplingParameters(top_p=0.0)}, "INVALID_ARGUMENT", "top_p"),
        ({"sampling": SamplingParameters(stop_ids=(41,))}, "INVALID_ARGUMENT", "stop_ids"),
        ({"tokens": (5, 2), "prompt_length": 1}, "INVALID_ARGUMENT", "complete already"),
    ],
)
async def test_a_session_that_can_not_be_served_is_refused_with_the_reason(
    changes: dict[str, Any], reason: str, field: str
):
    async with seam(FakeRuntime(), Validating) as worker, worker.connect() as stream:
        session = target_session(stream, PROMPT, GREEDY)
        session.opening = dataclasses.replace(session.opening, **changes)
        session.open(DraftTree.empty())
        failure = (await session.error()).failure
        assert failure.reason == reason
        assert field in failure.message
        # The stream goes on.
        assert (await target_session(stream, PROMPT, GREEDY).run()).ids


@given(
    parents=st.lists(st.integers(0, 30), max_size=30),
    tokens=st.lists(st.integers(-5, 15), min_size=30, max_size=30),
    depth=st.integers(-1, 6),
    max_nodes=st.integers(1, 20),
)
def test_fitted_keeps_exactly_what_fits(parents: list[int], tokens: list[int], depth: int, max_nodes: int):
    tree = DraftTree(
        tuple(tokens[: len(parents)]), tuple(parent % (node + 1) - 1 for node, parent in enumerate(parents))
    )
    fits, nodes = fitted(tree, vocab_size=10, depth=depth, max_nodes=max_nodes)
    assert fits.num_nodes == len(nodes) <= max_nodes
    assert fits.depth <= max(depth, 0)
    assert all(fits.tokens[index] == tree.tokens[node] for index, node in enumerate(nodes))
    reference = tree.within(10).limited(depth)
    assert fits.num_nodes == min(reference.num_nodes, max_nodes)
    for index, node in enumerate(nodes):
        assert [nodes[step] for step in fits.path_to(index)] == list(tree.path_to(node))


def test_c56_what_is_no_token_is_never_put_to_the_target():
    tree, nodes = fitted(DraftTree.chain((5, -1, 0, 7)), vocab_size=400, depth=8, max_nodes=64)
    assert (tree.tokens, nodes) == ((5,), (0,))
    # 0 is an id like any other, and stays where nothing invalid is above it.
    tree, nodes = fitted(DraftTree.chain((0, 0)), vocab_size=400, depth=8, max_nodes=64)
    assert (tree.tokens, nodes) == ((0, 0), (0, 1))
