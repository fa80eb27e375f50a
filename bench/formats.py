"""`python -m bench.formats [MODEL]`: how long a step of a model takes in each weight format, in turns."""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING
from unittest.mock import patch

from outrider.runtime.loading import load_runtime
from outrider.runtime.native import NoNativeLibrary
from outrider.runtime.sequence import Segment

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime

ROWS = (1, 4, 8, 12)
CONTEXT = 100
REPEATS = 5
ROUNDS = 4
KV_BYTES = 64 << 20


def main() -> None:
    """Print milliseconds per format and number of rows: the median, and in brackets the extremes."""
    model = sys.argv[1] if len(sys.argv) > 1 else "qwen-coder-0.5b"
    runtimes = {
        dtype: load_runtime(model, dtype=dtype, kv_budget_bytes=KV_BYTES)
        for dtype in ("bfloat16", "int8", "int4")
    }
    with patch("outrider.runtime.loading.native_library", side_effect=NoNativeLibrary("left out here")):
        runtimes["int4, torch's kernels"] = load_runtime(model, dtype="int4", kv_budget_bytes=KV_BYTES)
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
