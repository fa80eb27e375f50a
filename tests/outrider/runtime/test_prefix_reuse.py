"""Sequences that begin alike share pages, and not one bit changes by it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.runtime.loading import load_runtime
from outrider.runtime.sequence import Segment
from tests.support.models import tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from outrider.runtime.layout import StepLayout
    from outrider.runtime.runtime import Runtime
    from outrider.runtime.sequence import Sequence as Held

OTHER = b"o" * 32
POISON = 3
# 64 tokens of the tiny models take 64 * 2 layers * 2 * 2 heads * 16 * 4 bytes.
PAGE_BYTES = 32768


@pytest.fixture(params=["llama", "qwen2", "gemma2"])
def tiny(request: pytest.FixtureRequest, runtime_of: Callable[[str, str], Runtime]) -> Iterator[Runtime]:
    runtime = runtime_of(request.param, "float32")
    yield runtime
    assert runtime.num_free_pages == runtime.num_pages


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """A pool of 12 pages, so that pages are evicted all the time."""
    folder = tiny_model(tmp_path_factory.mktemp("small"))
    runtime = load_runtime(str(folder), dtype="float32", kv_budget_bytes=12 * PAGE_BYTES)
    assert runtime.num_pages == 12
    return runtime


@pytest.fixture
def scope() -> bytes:
    """Of this test alone: the runtimes are shared, and so is what they keep."""
    return secrets.token_bytes(32)


def text_of(runtime: Runtime, seed: int, length: int) -> tuple[int, ...]:
    draw = np.random.default_rng(seed)
    return tuple(draw.integers(POISON + 1, runtime.info.vocab_size, length).tolist())


def run(runtime: Runtime, held: Held, tokens: Sequence[int], *, stride: int = 1000) -> dict[int, np.ndarray]:
    """Run what the sequence lacks of `tokens`; logits by position."""
    logits: dict[int, np.ndarray] = {}
    while held.length < len(tokens):
        start = held.length
        part = tuple(tokens[start : start + stride])
        runtime.reserve(held, len(part))
        (rows,) = runtime.step([Segment(held, part, wanted=tuple(range(len(part))))])
        logits.update({start + index: row for index, row in enumerate(rows)})
    return logits


def cold(runtime: Runtime, tokens: Sequence[int]) -> dict[int, np.ndarray]:
    """Logits by a sequence that shares nothing."""
    held = runtime.new_sequence()
    logits = run(runtime, held, tokens)
    runtime.release(held)
    return logits


def assert_equal(logits: dict[int, np.ndarray], right: dict[int, np.ndarray]) -> None:
    assert logits
    for position, row in logits.items():
        assert np.array_equal(row, right[position]), f"other bits at position {position}"


@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
def test_c54_a_sequence_that_begins_alike_takes_pages_over(
    tiny: Runtime, scope: bytes, *, ended: bool
) -> None:
    tokens = text_of(tiny, 1, 300)
    right = cold(tiny, tokens)
    before = tiny.prefix_counters
    first, second = tiny.new_sequence(scope), tiny.new_sequence(scope)
    assert tiny.reuse(first, tokens) == 0
    run(tiny, first, tokens)
    tiny.share(first, tokens)
    if ended:
        tiny.release(first)
        assert tiny.num_kept_pages >= 4
    assert tiny.reuse(second, tokens) == 256
    logits = run(tiny, second, tokens)
    assert sorted(logits) == list(range(256, 300))
    assert_equal(logits, right)
    after = tiny.prefix_counters
    assert after.num_queried_tokens - before.num_queried_tokens == 600
    assert after.num_hit_tokens - before.num_hit_tokens == 256
    tiny.release(first)
    tiny.release(second)


def test_the_last_token_is_always_run(tiny: Runtime, scope: bytes) -> None:
    tokens = text_of(tiny, 2, 192)
    first, second = tiny.new_sequence(scope), tiny.new_sequence(scope)
    run(tiny, first, tokens)
    tiny.share(first, tokens)
    assert tiny.reuse(second, tokens) == 128
    assert_equal(run(tiny, second, tokens), cold(tiny, tokens))
    # One token more, and the third page may be taken too.
    third = tiny.new_sequence(scope)
    assert tiny.reuse(third, (*tokens, 9)) == 192
    for held in (first, second, third):
        tiny.release(held)


def test_c69_other_scopes_and_none_find_nothing(tiny: Runtime, scope: bytes) -> None:
    tokens = text_of(tiny, 3, 200)
    first = tiny.new_sequence(scope)
    run(tiny, first, tokens)
    tiny.share(first, tokens)
    for other in (OTHER, None):
        held = tiny.new_sequence(other)
        assert tiny.reuse(held, tokens) == 0
        tiny.share(held, tokens)
    unscoped = tiny.new_sequence()
    run(tiny, unscoped, text_of(tiny, 4, 200))
    tiny.share(unscoped, text_of(tiny, 4, 200))
    assert tiny.reuse(tiny.new_sequence(scope), text_of(tiny, 4, 200)) == 0
    tiny.release(first)
    tiny.release(unscoped)


def test_guesses_are_not_shared(tiny: Runtime, scope: bytes) -> None:
    tokens, guesses = text_of(tiny, 5, 100), text_of(tiny, 6, 100)
    first = tiny.new_sequence(scope)
    run(tiny, first, (*tokens, *guesses))
    # 200 rows are held, of which 100 are known to be right.
    tiny.share(first, tokens)
    assert len(first.chain) == 1
    # What came instead of the guesses is not what the KV holds.
    tiny.share(first, (*tokens, *text_of(tiny, 7, 100)))
    assert len(first.chain) == 1
    assert tiny.reuse(tiny.new_sequence(OTHER), (*tokens, *guesses)) == 0
    second = tiny.new_sequence(scope)
    assert tiny.reuse(second, (*tokens, *guesses)) == 64
    for held in (first, second):
        tiny.release(held)


@pytest.mark.parametrize("place", [0, 63, 64, 100, 129])
def test_rows_that_broke_are_not_shared_nor_any_behind_them(
    tiny: Runtime, scope: bytes, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = list(text_of(tiny, 8, 256))
    tokens[place] = POISON
    sound = tiny._forward

    def forward(layout: StepLayout) -> tuple[np.ndarray, np.ndarray]:
        logits, finite = sound(layout)
        return logits, finite & (layout.tokens != POISON)

    first = tiny.new_sequence(scope)
    with monkeypatch.context() as patched:
        patched.setattr(tiny, "_forward", forward)
        run(tiny, first, tokens)
    tiny.share(first, tokens)
    second = tiny.new_sequence(scope)
    assert tiny.reuse(second, tokens) == place // 64 * 64
    tiny.release(first)
    assert_equal(run(tiny, second, tokens), cold(tiny, tokens))
    tiny.release(second)


@pytest.mark.parametrize("length", [64, 70, 127, 128, 130, 191])
@pytest.mark.parametrize("others", ["none", "running", "ended"])
def test_a_shared_page_is_not_written_again(tiny: Runtime, scope: bytes, length: int, others: str) -> None:
    """A sequence is cut inside pages that are shared, and goes on with other tokens."""
    tokens = text_of(tiny, 9, 200)
    right = cold(tiny, tokens)
    first, second = tiny.new_sequence(scope), tiny.new_sequence(scope)
    run(tiny, first, tokens)
    tiny.share(first, tokens)
    if others != "none":
        tiny.reuse(second, tokens)
        run(tiny, second, tokens)
    if others == "ended":
        tiny.release(second)
    tiny.truncate(first, length)
    turn = (*tokens[:length], *text_of(tiny, 10, 90))
    assert_equal(run(tiny, first, turn, stride=7), cold(tiny, turn))
    tiny.share(first, turn)
    # Whoever reads the first text reads it as it was, whether from the cache or from its own pages.
    if others == "running":
        more = (*tokens, *text_of(tiny, 11, 70))
        assert_equal(run(tiny, second, more), cold(tiny, more))
    third = tiny.new_sequence(scope)
    reused = tiny.reuse(third, tokens)
    assert reused >= length // 64 * 64
    assert_equal(run(tiny, third, tokens), right)
    fourth = tiny.new_sequence(scope)
    assert tiny.reuse(fourth, turn) == (len(turn) - 1) // 64 * 64
    assert_equal(run(tiny, fourth, turn), cold(tiny, turn))
    for held in (first, second, third, fourth):
        tiny.release(held)


def test_a_cut_page_of_two_holders_is_left_to_the_other(small: Runtime, scope: bytes) -> None:
    """In a pool too small for copies both hold the very same pages."""
    tokens = text_of(small, 12, 130)
    first, second = small.new_sequence(scope), small.new_sequence(scope)
    run(small, first, tokens)
    small.share(first, tokens)
    filler = small.new_sequence()
    small.reserve(filler, 6 * 64)
    assert small.reuse(second, tokens) == 128
    assert second.pages == first.pages[:2]
    shared = first.pages[1]
    small.truncate(second, 100)
    assert second.sealed
    assert second.capacity == 64
    with pytest.raises(ValueError, match="reserve"):
        small.step([Segment(second, (9,))])
    turn = (*tokens[:100], *text_of(small, 13, 20))
    assert_equal(run(small, second, turn), cold(small, turn))
    assert second.pages[1] != shared
    assert first.pages[1] == shared
    # When the other one goes first there is nobody to leave it to.
    third = small.new_sequence(scope)
    assert small.reuse(third, tokens) == 128
    small.truncate(third, 100)
    small.release(first)
    assert small.can_reserve(third, 20)
    assert_equal(run(small, third, turn), cold(small, turn))
    assert third.pages[1] == shared
    for held in (second, third, filler):
        small.release(held)
    assert small.num_free_pages == small.num_pages


def test_prompts_under_way_together_meet_at_page_borders(tiny: Runtime, scope: bytes) -> None:
    tokens = text_of(tiny, 14, 300)
    ahead, behind = tiny.new_sequence(scope), tiny.new_sequence(scope)
    run(tiny, ahead, tokens[:64])
    run(tiny, behind, tokens[:64])
    tiny.share(ahead, tokens)
    tiny.share(behind, tokens)
    assert tiny.next_page(ahead, tokens) == tiny.next_page(behind, tokens) is not None
    run(tiny, ahead, tokens[:200])
    tiny.share(ahead, tokens)
    assert tiny.reuse(behind, tokens) == 128
    assert_equal(run(tiny, behind, tokens), cold(tiny, tokens))
    tiny.release(ahead)
    tiny.release(behind)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_c54_any_order_of_sharing_cutting_and_evicting_keeps_every_bit(
    small: Runtime, scope: bytes, data: st.DataObject
) -> None:
    """Texts that branch off each other at random places, in a pool that holds only a part of them."""
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    texts = [text_of(small, 100, 250)]
    for seed in range(4):
        stem = texts[int(draw.integers(len(texts)))]
        texts.append((*stem[: int(draw.integers(0, 250))], *text_of(small, 200 + seed, 250))[:250])
    right = [cold(small, text) for text in texts]
    running: list[tuple[int, Held]] = []
    hits = small.prefix_counters.num_hit_tokens
    for _ in range(data.draw(st.integers(10, 40), label="steps")):
        action = draw.choice(["open", "run", "run", "run", "cut", "close", "drop"])
        if action == "open" and len(running) < 4:
            running.append((int(draw.integers(len(texts))), small.new_sequence(scope)))
            continue
        if not running:
            continue
        number, held = running[int(draw.integers(len(running)))]
        text = texts[number]
        if action == "run":
            goal = min(len(text), held.length + int(draw.choice([1, 5, 40, 64, 150])))
            small.reuse(held, text[:goal])
            if held.length < goal and small.can_reserve(held, goal - held.length):
                assert_equal(
                    run(small, held, text[:goal], stride=int(draw.choice([3, 64, 500]))), right[number]
                )
            small.share(held, text[: held.length])
        elif action == "cut":
            small.truncate(held, int(draw.integers(held.length + 1)))
        else:
            small.release(held)
            if action == "close":
                running.remove((number, held))
        pages = [page for _, each in running for page in each.pages]
        assert small.num_free_pages == small.num_pages - len(set(pages))
    for _, held in running:
        small.release(held)
    assert small.num_free_pages == small.num_pages
    assert small.prefix_counters.num_hit_tokens >= hits
