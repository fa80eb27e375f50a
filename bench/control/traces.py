"""What a draft model would have proposed at every position of real answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from outrider.runtime.sequence import Segment

if TYPE_CHECKING:
    from bench.workloads import Prompt
    from outrider.runtime.runtime import Runtime
    from outrider.runtime.sequence import Sequence as Sequence_

DEPTH = 16
STRETCH = 256
"""Tokens of a prompt that are read at once."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One greedy answer, and the draft's chain before each of its tokens."""

    workload: str
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    # Per position of the output: how many tokens of the chain are the answer's.
    right: tuple[int, ...]
    # Per position: the draft's confidence in each token of its chain.
    confidences: tuple[tuple[float, ...], ...]


def record(
    target: Runtime,
    draft: Runtime,
    prompts: Sequence[tuple[Prompt, tuple[int, ...]]],
    num_tokens: int,
    say: Callable[[str], None],
) -> list[Trace]:
    """Answer each prompt with the target, and draft `DEPTH` tokens at every position."""
    traces = []
    for number, (prompt, ids) in enumerate(prompts, start=1):
        output = _answer(target, ids, num_tokens)
        chains = _chains(draft, ids, output)
        right = tuple(_num_right(chain, output[at:]) for at, chain in enumerate(chains))
        confidences = tuple(tuple(round(each, 4) for _, each in chain) for chain in chains)
        traces.append(Trace(prompt.workload, ids, output, right, confidences))
        mean = sum(right) / max(1, len(right))
        say(f"{number}/{len(prompts)} {prompt.name}: {mean:.1f} tokens right on average")
    return traces


def write(traces: Sequence[Trace], path: Path) -> None:
    """As JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(trace) for trace in traces]), encoding="utf-8")


def read(path: Path) -> list[Trace]:
    """What `write` wrote."""
    return [
        Trace(
            each["workload"],
            tuple(each["prompt"]),
            tuple(each["output"]),
            tuple(each["right"]),
            tuple(tuple(row) for row in each["confidences"]),
        )
        for each in json.loads(path.read_text(encoding="utf-8"))
    ]


def _answer(runtime: Runtime, prompt: Sequence[int], num_tokens: int) -> tuple[int, ...]:
    sequence = runtime.new_sequence()
    runtime.reserve(sequence, len(prompt) + num_tokens + 1)
    output: list[int] = []
    row = _read(runtime, sequence, prompt)
    for _ in range(num_tokens):
        output.append(int(row.argmax()))
        if output[-1] in runtime.info.eos_ids:
            break
        row = _read(runtime, sequence, output[-1:])
    runtime.release(sequence)
    return tuple(output)


def _chains(runtime: Runtime, prompt: Sequence[int], output: Sequence[int]) -> list[list[tuple[int, float]]]:
    sequence = runtime.new_sequence()
    runtime.reserve(sequence, len(prompt) + len(output) + DEPTH + 1)
    chains = []
    row = _read(runtime, sequence, prompt)
    for at, token in enumerate(output):
        chain: list[tuple[int, float]] = []
        ahead = row
        for depth in range(DEPTH):
            best = int(ahead.argmax())
            chain.append((best, _confidence(ahead, best)))
            if depth + 1 < DEPTH:
                ahead = _read(runtime, sequence, [best])
        chains.append(chain)
        runtime.truncate(sequence, len(prompt) + at)
        row = _read(runtime, sequence, [token])
    runtime.release(sequence)
    return chains


def _num_right(chain: Sequence[tuple[int, float]], output: Sequence[int]) -> int:
    pairs = zip(chain, output, strict=False)
    wrong = (at for at, ((token, _), true) in enumerate(pairs) if token != true)
    return next(wrong, min(len(chain), len(output)))


def _read(runtime: Runtime, sequence: Sequence_, tokens: Sequence[int]) -> np.ndarray:
    """Logits behind the last of them, float32 [width]."""
    *parts, last = [tuple(tokens[first : first + STRETCH]) for first in range(0, len(tokens), STRETCH)]
    for part in parts:
        runtime.step([Segment(sequence, part)])
    (logits,) = runtime.step([Segment(sequence, last, wanted=(len(last) - 1,))])
    row: np.ndarray = logits[-1]
    return row


def _confidence(row: np.ndarray, best: int) -> float:
    return float(1.0 / np.exp(row.astype(np.float64) - float(row[best])).sum())
