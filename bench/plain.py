"""Plain decoding: the runtime's k = 0 step against Hugging Face `generate`, interleaved, in one process.

python -m bench.plain [MODEL]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from outrider.runtime.checkpoints import checkpoint_folder
from outrider.runtime.loading import load_runtime
from outrider.runtime.runtime import Runtime
from outrider.runtime.sequence import Segment

NUM_PROMPT, NUM_TOKENS, NUM_PAIRS = 40, 64, 9


def plain_steps(runtime: Runtime, prompt: tuple[int, ...]) -> None:
    """Greedy decoding, one row at a time."""
    sequence = runtime.new_sequence()
    runtime.reserve(sequence, len(prompt) + NUM_TOKENS)
    (logits,) = runtime.step([Segment(sequence, prompt, wanted=(len(prompt) - 1,))])
    for _ in range(NUM_TOKENS - 1):
        (logits,) = runtime.step([Segment(sequence, (int(logits[0].argmax()),), wanted=(0,))])
    runtime.release(sequence)


def rate(run: Callable[[], None]) -> float:
    """Tokens per second."""
    start = time.perf_counter()
    run()
    return NUM_TOKENS / (time.perf_counter() - start)


def main() -> None:
    """Print both rates and the spread of their ratio."""
    name = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
    runtime = load_runtime(name)
    reference = AutoModelForCausalLM.from_pretrained(
        checkpoint_folder(name, "bfloat16", print), dtype=torch.bfloat16
    )
    ids = np.random.default_rng(0).integers(0, runtime.info.vocab_size, NUM_PROMPT)
    prompt = tuple(int(token) for token in ids)
    settings = GenerationConfig(  # type: ignore[no-untyped-call]  # as it is published
        max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS, do_sample=False, pad_token_id=0
    )

    def ours() -> None:
        plain_steps(runtime, prompt)

    def theirs() -> None:
        rows = torch.tensor([prompt])
        with torch.inference_mode():
            reference.generate(rows, attention_mask=torch.ones_like(rows), generation_config=settings)

    for warm_up in (ours, theirs):
        warm_up()
    pairs = [(rate(ours), rate(theirs)) for _ in range(NUM_PAIRS)]
    ratios = sorted(one / other for one, other in pairs)
    print(f"{name}, bfloat16, {torch.get_num_threads()} threads, {NUM_TOKENS} tokens, {NUM_PAIRS} pairs")
    print(f"runtime, k = 0     {statistics.median(one for one, _ in pairs):6.1f} tok/s")
    print(f"transformers       {statistics.median(other for _, other in pairs):6.1f} tok/s")
    print(f"ratio              {statistics.median(ratios):6.2f}   from {ratios[0]:.2f} to {ratios[-1]:.2f}")


if __name__ == "__main__":
    main()
