"""What callers of a runtime may and may not do, and that mistakes change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from outrider.runtime.sequence import Segment
from outrider.runtime.weights import PackedLinear

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outrider.runtime.runtime import Runtime


@pytest.fixture
def runtime(runtime_of: Callable[[str, str], Runtime]) -> Iterator[Runtime]:
    runtime = runtime_of("llama", "float32")
    before = runtime.num_free_pages
    yield runtime
    assert runtime.num_free_pages == before


def test_reserve_asks_for_whole_pages_and_release_gives_them_back(runtime: Runtime) -> None:
    sequence = runtime.new_sequence()
    assert sequence.num_pages == 0
    runtime.reserve(sequence, 65)
    assert sequence.num_pages == 2
    runtime.reserve(sequence, 100)
    assert sequence.num_pages == 2
    assert not runtime.can_reserve(sequence, (runtime.num_pages + 1) * runtime.page_size)
    runtime.release(sequence)
    assert sequence.num_pages == 0


def test_steps_that_can_not_be_run_change_nothing(runtime: Runtime) -> None:
    sequence = runtime.new_sequence()
    runtime.reserve(sequence, 64)
    runtime.step([Segment(sequence, (5, 6, 7))])
    wrong = [
        [],
        [Segment(sequence, (5,) * 2000)],
        [Segment(sequence, (5,) * 62)],
        [Segment(sequence, (5, 6), parents=(-1,))],
        [Segment(sequence, (5,)), Segment(sequence, (6,))],
    ]
    for segments in wrong:
        with pytest.raises(ValueError, match=r"rows|chain|parents"):
            runtime.step(segments)
        assert sequence.length == 3
        assert sequence.parents == []
    # An id that the embedding does not have fails in the middle of the forward.
    with pytest.raises((IndexError, RuntimeError)):
        runtime.step([Segment(sequence, (5,)), Segment(sequence, (10**6,), parents=(-1,))])
    assert (sequence.length, sequence.parents) == (3, [])
    runtime.release(sequence)


def test_a_chain_may_not_follow_a_pending_tree(runtime: Runtime) -> None:
    sequence = runtime.new_sequence()
    runtime.reserve(sequence, 64)
    runtime.step([Segment(sequence, (5, 6)), Segment(sequence, (7, 8), parents=(-1, -1))])
    with pytest.raises(ValueError, match="pending tree"):
        runtime.step([Segment(sequence, (9,))])
    with pytest.raises(ValueError, match="not a path"):
        runtime.keep(sequence, [0, 1])
    runtime.keep(sequence, [1])
    assert sequence.length == 3
    with pytest.raises(ValueError, match="cannot truncate"):
        runtime.truncate(sequence, 4)
    runtime.release(sequence)


def test_rows_without_wanted_logits_return_none(runtime: Runtime) -> None:
    sequence = runtime.new_sequence()
    runtime.reserve(sequence, 64)
    (logits,) = runtime.step([Segment(sequence, (5, 6))])
    assert logits.shape[0] == 0
    (logits,) = runtime.step([Segment(sequence, (7,), wanted=(0,))])
    assert logits.dtype == np.float32
    assert logits.shape == (1, 400)
    runtime.release(sequence)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [4, 8, 12, 64, 100])
def test_packed_weights_give_the_bits_of_plain_ones(rows: int, *, bias: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    layer = torch.nn.Linear(576, 192, bias=bias, dtype=torch.bfloat16)
    inputs = torch.randn(1, rows, 576, generator=generator).to(torch.bfloat16)
    with torch.inference_mode():
        assert torch.equal(PackedLinear(layer)(inputs), linear(inputs, layer.weight, layer.bias))
