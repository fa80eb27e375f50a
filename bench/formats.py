"""`python -m bench.formats [MODEL [FORMAT...]]`: how long a step takes in each weight format, in turns."""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING
from unittest.mock import patch

from outrider.runtime.loading import load_runtime
from outrider.runtime.sequence import Segment

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime

ROWS = (1, 4, 8, 12)
CONTEXT = 100
REPEATS = 5
ROUNDS = 4
KV_BYTES = 64 << 20
FORMATS = ("bfloat16", "int8", "int4")
OTHERS = {
    "bfloat16": ("oneDNN", "outrider.runtime.weights.obstacle_to_tiles"),
    "int4": ("torch's kernels", "outrider.runtime.loading.obstacle_to_native"),
}
"""What a format runs on where our own compiled code can not be had, and the function that says so."""


def main() -> None:
    """Print milliseconds per format and number of rows: the median, and in brackets the extremes."""
    model, *formats = sys.argv[1:] or ["qwen-coder-0.5b"]
    runtimes: dict[str, Runtime] = {}
    for dtype in formats or FORMATS:
        runtimes[dtype] = load_runtime(model, dtype=dtype, kv_budget_bytes=KV_BYTES)
        if dtype in OTHERS:
            name, obstacle = OTHERS[dtype]
            with patch(obstacle, return_value="left out here"):
                runtimes[f"{dtype}, {name}"] = load_runtime(model, dtype=dtype, kv_budget_bytes=KV_BYTES)
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(ROUNDS):
        for name, runtime in runtimes.items():
            for num_rows in ROWS:
                found.setdefault((name, num_rows), []).extend(_step_ms(runtime, num_rows))
    print(f"{model}: milliseconds per step; rows:", *ROWS, sep="\t")
    for name in runtimes:
        figures = (found[name, num_rows] for num_rows in ROWS)
        shown = (f"{statistics.median(each):.1f} ({min(each):.1f}-{max(each):.1f})" for each in figures)
        print(name, *shown, sep="\t")


def _step_ms(runtime: Runtime, num_rows: int) -> list[float]:
    sequence = runtime.new_sequence()
    runtime.reserve(sequence, CONTEXT + num_rows)
    runtime.step([Segment(sequence, tuple(range(100, 100 + CONTEXT)))])
    rows = Segment(sequence, tuple(range(300, 300 + num_rows)), wanted=(num_rows - 1,))
    taken = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        runtime.step([rows])
        taken.append((time.perf_counter() - started) * 1e3)
        runtime.truncate(sequence, CONTEXT)
    runtime.release(sequence)
    return taken


if __name__ == "__main__":
    main()
