"""Proof at start that bits do not depend on the batch, and the id of all that they do depend on."""

from __future__ import annotations

import platform
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import transformers

from outrider.runtime.fingerprints import combined
from outrider.runtime.sequence import Segment, Sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.runtime.runtime import Runtime

# Long enough to cross a page; the tail is reached in every way that there is.
_LENGTH = 75
_TAIL = 9
_START = _LENGTH - _TAIL


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Result of `self_test`."""

    # Ways of reaching the same positions that gave other bits than one prefill.
    differing: tuple[str, ...]
    # Hash of the canary's logits.
    canary: str

    @property
    def bitwise(self) -> bool:
        """Whether all ways gave the same bits."""
        return not self.differing


def self_test(runtime: Runtime, vocab_size: int) -> SelfTest:
    """Reach the last positions of a fixed text in several ways and compare all logits bit by bit.

    Row counts, splits, wrong drafts, neighbours and trees are among the ways, on the real device with its
    real thread count. Takes about thirty small forwards.

    Raises:
        OutOfPages: the KV budget does not hold two short sequences.
    """
    draw = np.random.default_rng(20)
    tokens = tuple(draw.integers(0, vocab_size, _LENGTH).tolist())
    others = tuple(draw.integers(0, vocab_size, _LENGTH).tolist())
    reference = _in_blocks(runtime, tokens, [_TAIL])
    found = {
        "token by token": _in_blocks(runtime, tokens, [1] * _TAIL),
        "in blocks": _in_blocks(runtime, tokens, [2, 5, 2]),
        "in blocks of six and three": _in_blocks(runtime, tokens, [6, 3]),
        "in blocks of seven and two": _in_blocks(runtime, tokens, [7, 2]),
        "other prefill chunks": _in_blocks(runtime, tokens, [_TAIL], prefill=[3, 40, _START - 43]),
        "after wrong drafts": _after_wrong_drafts(runtime, tokens, others),
        "beside a neighbour": _beside_a_neighbour(runtime, tokens, others),
        "in a tree": _in_a_tree(runtime, tokens, others),
    }
    differing = tuple(way for way, logits in found.items() if not np.array_equal(logits, reference))
    return SelfTest(differing=differing, canary=combined([reference.tobytes().hex()]))


def numerics_id(weight_fingerprint: str, dtype: str, device: torch.device, canary: str) -> str:
    """Hash everything that equal bits need; two workers with equal ids give equal logits. 32 hex digits."""
    if device.type == "cuda":
        hardware = [torch.cuda.get_device_name(device), f"cuda {torch.version.cuda}"]
    else:
        capability = torch.backends.cpu.get_cpu_capability()
        hardware = [platform.machine(), capability, f"{torch.get_num_threads()} threads"]
    versions = [torch.__version__, transformers.__version__]
    return combined([weight_fingerprint, dtype, device.type, *hardware, *versions, canary])


@contextmanager
def _sequence_of(runtime: Runtime, tokens: tuple[int, ...], chunks: list[int]) -> Iterator[Sequence]:
    """A sequence that holds the tokens before the tail, with room for the tail twice over."""
    sequence = runtime.new_sequence()
    try:
        runtime.reserve(sequence, _LENGTH + _TAIL)
        for chunk in chunks:
            runtime.step([Segment(sequence, tokens[sequence.length : sequence.length + chunk])])
        yield sequence
    finally:
        runtime.release(sequence)


def _in_blocks(
    runtime: Runtime, tokens: tuple[int, ...], blocks: list[int], prefill: list[int] | None = None
) -> np.ndarray:
    """Logits of the tail, float32 [_TAIL, width]."""
    with _sequence_of(runtime, tokens, prefill or [_START]) as sequence:
        parts = []
        for block in blocks:
            ids = tokens[sequence.length : sequence.length + block]
            parts += runtime.step([Segment(sequence, ids, wanted=tuple(range(block)))])
        return np.concatenate(parts)


def _after_wrong_drafts(runtime: Runtime, tokens: tuple[int, ...], others: tuple[int, ...]) -> np.ndarray:
    with _sequence_of(runtime, tokens, [_START]) as sequence:
        rows = []
        for position in range(_START, _LENGTH):
            wrong = others[: 1 + position % 5]
            (logits,) = runtime.step([Segment(sequence, (tokens[position], *wrong), wanted=(0,))])
            runtime.truncate(sequence, position + 1)
            rows.append(logits)
        return np.concatenate(rows)


def _beside_a_neighbour(runtime: Runtime, tokens: tuple[int, ...], others: tuple[int, ...]) -> np.ndarray:
    with _sequence_of(runtime, tokens, [_START]) as sequence, _sequence_of(runtime, others, [10]) as other:
        rows = []
        for position in range(_START, _LENGTH):
            ids = others[other.length : other.length + 1 + position % 4]
            mine = Segment(sequence, (tokens[position],), wanted=(0,))
            rows.append(runtime.step([Segment(other, ids, wanted=(0,)), mine])[1])
        return np.concatenate(rows)


def _in_a_tree(runtime: Runtime, tokens: tuple[int, ...], others: tuple[int, ...]) -> np.ndarray:
    """A tree with the true path between two wrong ones, below the first token of the tail."""
    with _sequence_of(runtime, tokens, [_START]) as sequence:
        tail = tokens[_START:]
        true = [2 * depth - 1 for depth in range(1, _TAIL)]
        ids, parents = [], []
        for depth in range(1, _TAIL):
            above = true[depth - 2] if depth > 1 else -1
            ids += [others[depth], tail[depth]]
            parents += [above, above]
        (head, below) = runtime.step(
            [
                Segment(sequence, tail[:1], wanted=(0,)),
                Segment(sequence, tuple(ids), parents=tuple(parents), wanted=tuple(true)),
            ]
        )
        return np.concatenate([head, below])
