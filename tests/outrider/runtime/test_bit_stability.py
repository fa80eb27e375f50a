"""A position's logits are the same to the bit, however it was reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.runtime.numerics import self_test
from outrider.runtime.sequence import Segment
from outrider.wire.worker import Exactness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outrider.runtime.runtime import Runtime

TINY = ["llama", "qwen2", "gemma2"]
DTYPES = ["float32", "bfloat16"]
# Of int4 the compiled forward where the machine has it, else torch's kernels.
QUANTIZED = [("llama", "int4"), ("qwen2", "int4"), ("llama", "int8"), ("gemma2", "int4")]
LENGTH = 150
# An id that breaks whoever feeds it; `poisoned` sees to that.
POISON = 3


@pytest.fixture(params=[*((family, dtype) for family in TINY for dtype in DTYPES), *QUANTIZED], ids="-".join)
def tiny(request: pytest.FixtureRequest, runtime_of: Callable[[str, str], Runtime]) -> Iterator[Runtime]:
    with _poisoned(runtime_of(*request.param)) as runtime:
        yield runtime


@pytest.fixture(params=DTYPES)
def smollm2(request: pytest.FixtureRequest, runtime_of: Callable[[str, str], Runtime]) -> Iterator[Runtime]:
    with _poisoned(runtime_of("smollm2", request.param)) as runtime:
        yield runtime


def _model_of(runtime: Runtime) -> Any:
    return runtime._forward._model  # type: ignore[attr-defined]  # both kinds of forward have one


class _poisoned:  # noqa: N801  # reads as a verb
    """Makes the embedding of one id NaN, so that its keys and values are NaN in every layer."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __enter__(self) -> Runtime:
        def poison(_: object, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
            return output.masked_fill((inputs[0] == POISON)[..., None], float("nan"))

        embeddings = _model_of(self._runtime).get_input_embeddings()
        self._hook = embeddings.register_forward_hook(poison)
        return self._runtime

    def __exit__(self, *_: object) -> None:
        self._hook.remove()


def _text(runtime: Runtime, seed: int, length: int = LENGTH) -> tuple[int, ...]:
    draw = np.random.default_rng(seed)
    return tuple(draw.integers(POISON + 1, runtime.info.vocab_size, length).tolist())


def _by_one_prefill(runtime: Runtime, tokens: tuple[int, ...]) -> np.ndarray:
    """Logits of all positions, [length, width]."""
    sequence = runtime.new_sequence()
    runtime.reserve(sequence, len(tokens))
    (logits,) = runtime.step([Segment(sequence, tokens, wanted=tuple(range(len(tokens))))])
    runtime.release(sequence)
    return logits


def _wrong_tree(rng: np.random.Generator, vocab_size: int, num_nodes: int) -> tuple[list[int], list[int]]:
    ids = rng.integers(POISON, vocab_size, num_nodes).tolist()
    return ids, [int(rng.integers(-1, node)) for node in range(num_nodes)]


class _Session:
    """Walks a fixed text in random strides and collects the logits of its positions."""

    def __init__(self, runtime: Runtime, tokens: tuple[int, ...], rng: np.random.Generator) -> None:
        self.runtime, self.tokens, self.rng = runtime, tokens, rng
        self.sequence = runtime.new_sequence()
        self.logits: dict[int, np.ndarray] = {}

    @property
    def done(self) -> bool:
        return self.sequence.length >= len(self.tokens)

    def maybe_rebuild(self) -> None:
        """Lose all KV now and then, and rebuild it by one prefill up to the same place."""
        if self.rng.random() < 0.08 and self.sequence.length:
            length = self.sequence.length
            self.runtime.release(self.sequence)
            self.runtime.reserve(self.sequence, length)
            self.runtime.step([Segment(self.sequence, self.tokens[:length])])

    def segments(self) -> list[Segment]:
        """The next rows: some true tokens, then nothing, a wrong chain, or a tree with a true path."""
        start = self.sequence.length
        stride = int(self.rng.choice([1, 1, 2, 3, 5, 8, 40]))
        head = self.tokens[start : start + stride]
        kind = self.rng.choice(["plain", "chain", "tree"])
        ids, parents = _wrong_tree(self.rng, self.runtime.info.vocab_size, int(self.rng.integers(1, 9)))
        self.plan: Callable[[list[np.ndarray]], None]
        self.runtime.reserve(self.sequence, len(head) + 40)
        if kind == "chain":
            # Wrong drafts, the poisoned id among them.
            chain = (*head, *ids)
            self.plan = lambda parts: self._took_chain(start, len(head), parts)
            return [Segment(self.sequence, chain, wanted=tuple(range(len(chain))))]
        plain = Segment(self.sequence, head, wanted=tuple(range(len(head))))
        if kind == "plain":
            self.plan = lambda parts: self._took_chain(start, len(head), parts)
            return [plain]
        true = self.tokens[start + len(head) : start + len(head) + int(self.rng.integers(0, 4))]
        path, above = [], -1
        for token in true:
            # True nodes are scattered among the wrong ones, each below the true one before it.
            place = int(self.rng.integers(above + 1, len(ids) + 1))
            ids.insert(place, token)
            parents = [parent + (parent >= place) for parent in parents]
            parents.insert(place, above)
            path.append(place)
            above = place
        self.plan = lambda parts: self._took_tree(start, len(head), path, parts)
        tree = Segment(self.sequence, tuple(ids), parents=tuple(parents), wanted=tuple(range(len(ids))))
        return [plain, tree]

    def _took_chain(self, start: int, count: int, parts: list[np.ndarray]) -> None:
        for index in range(count):
            self.logits[start + index] = parts[0][index]
        self.runtime.truncate(self.sequence, start + count)

    def _took_tree(self, start: int, count: int, path: list[int], parts: list[np.ndarray]) -> None:
        for index in range(count):
            self.logits[start + index] = parts[0][index]
        for depth, node in enumerate(path):
            self.logits[start + count + depth] = parts[1][node]
        self.runtime.keep(self.sequence, path)


def _walk_together(runtime: Runtime, seed: int, num_sessions: int, lengths: list[int]) -> None:
    """Sessions in random strides and random company; every logit must be that of one prefill, alone."""
    rng = np.random.default_rng(seed)
    sessions = [
        _Session(runtime, _text(runtime, seed + index, lengths[index]), np.random.default_rng(seed + index))
        for index in range(num_sessions)
    ]
    broken = runtime.new_sequence()
    runtime.reserve(broken, 64)
    runtime.step([Segment(broken, (POISON, POISON + 1))])
    while waiting := [session for session in sessions if not session.done]:
        chosen = [session for session in waiting if rng.random() < 0.7] or waiting[:1]
        batch: list[Segment] = []
        cuts: list[tuple[_Session, int, int]] = []
        for session in chosen:
            session.maybe_rebuild()
            segments = session.segments()
            cuts.append((session, len(batch), len(batch) + len(segments)))
            batch += segments
        if broken.length < 60 and rng.random() < 0.5:
            batch.append(Segment(broken, (POISON + 1, POISON), wanted=(0, 1)))
        results = runtime.step(batch)
        for session, first, last in cuts:
            session.plan(results[first:last])
        if len(batch) > cuts[-1][2]:
            assert np.isnan(results[-1]).all(), "a broken session's logits must say so"
    runtime.release(broken)
    for session in sessions:
        runtime.release(session.sequence)
        reference = _by_one_prefill(runtime, session.tokens)
        assert np.isfinite(reference).all()
        for position, logits in session.logits.items():
            assert np.array_equal(logits, reference[position]), f"other bits at position {position}"
        assert len(session.logits) >= len(session.tokens) // 2
    assert runtime.num_free_pages == runtime.num_pages


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 10), lengths=st.lists(st.integers(1, LENGTH), min_size=1, max_size=5))
def test_tiny_models_keep_every_bit(tiny: Runtime, seed: int, lengths: list[int]) -> None:
    _walk_together(tiny, seed, len(lengths), lengths)


def test_tiny_models_keep_every_bit_where_attention_works_in_several_blocks_of_keys(tiny: Runtime) -> None:
    _walk_together(tiny, 5, 2, [700, 530])


@pytest.mark.parametrize("seed", [1, 2])
def test_smollm2_keeps_every_bit(smollm2: Runtime, seed: int) -> None:
    _walk_together(smollm2, seed, 3, [LENGTH, 70, 9])


def test_own_broken_drafts_do_not_reach_the_rows_before_them(tiny: Runtime) -> None:
    tokens = _text(tiny, 7, 30)
    reference = _by_one_prefill(tiny, tokens)
    sequence = tiny.new_sequence()
    tiny.reserve(sequence, 64)
    (logits,) = tiny.step([Segment(sequence, (*tokens[:20], POISON, 9), wanted=(18, 19, 20, 21))])
    assert np.array_equal(logits[:2], reference[18:20])
    assert np.isnan(logits[2:]).all()
    tiny.truncate(sequence, 20)
    (logits,) = tiny.step([Segment(sequence, tokens[20:], wanted=tuple(range(10)))])
    assert np.array_equal(logits, reference[20:])
    tiny.release(sequence)


def test_a_broken_node_is_known_on_its_own_path_only(tiny: Runtime) -> None:
    tokens = _text(tiny, 8, 20)
    reference = _by_one_prefill(tiny, tokens)
    sequence = tiny.new_sequence()
    tiny.reserve(sequence, 64)
    tree = ((POISON, tokens[10], 9, tokens[11]), (-1, -1, 0, 1))
    (_, logits) = tiny.step([Segment(sequence, tokens[:10]), Segment(sequence, *tree, wanted=(0, 1, 2, 3))])
    assert np.isnan(logits[[0, 2]]).all()
    assert np.array_equal(logits[[1, 3]], reference[10:12])
    tiny.keep(sequence, [0])
    (logits,) = tiny.step([Segment(sequence, (9,), wanted=(0,))])
    assert np.isnan(logits).all()
    tiny.release(sequence)


def test_start_up_test_reports_bitwise(tiny: Runtime) -> None:
    assert tiny.info.exactness is Exactness.BITWISE


def test_start_up_test_finds_a_model_that_looks_at_its_batch(
    runtime_of: Callable[[str, str], Runtime],
) -> None:
    runtime = runtime_of("llama", "float32")

    def peek(_: object, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        # What a mean over the batch would do.
        return output * (1 + output.shape[1] * 1e-3)

    hook = _model_of(runtime).get_input_embeddings().register_forward_hook(peek)
    try:
        result = self_test(runtime, runtime.info.vocab_size)
    finally:
        hook.remove()
    assert not result.bitwise
    assert "token by token" in result.differing


def test_pages_scattered_over_the_pool_give_the_same_bits(tiny: Runtime) -> None:
    tokens = _text(tiny, 9)
    reference = _by_one_prefill(tiny, tokens)
    first, second = tiny.new_sequence(), tiny.new_sequence()
    rows = []
    for start in range(0, LENGTH, 30):
        # The other sequence takes the page behind each time.
        for sequence in (first, second):
            tiny.reserve(sequence, 30)
        ids = tokens[start : start + 30]
        rows += tiny.step([Segment(first, ids, wanted=tuple(range(30))), Segment(second, ids)])[:1]
    assert np.array_equal(np.concatenate(rows), reference)
    tiny.release(first)
    tiny.release(second)
