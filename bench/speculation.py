"""Speculation against plain decoding through a running gateway, interleaved; ids must be equal.

outrider up --models qwen-coder
python -m bench.speculation [--server HOST:PORT] [--tokens 96] [--workload json]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from outrider.client import Chat, ChatMessage, Completion, OutriderClient
from outrider.client.client import DEFAULT_ADDRESS
from outrider.sampling.parameters import SamplingParameters
from outrider.wire.generation import DraftSource, Speculation

PROMPTS = Path(__file__).parent / "prompts"
WORKLOADS = ("json", "code", "prose")
CONFIGURATIONS = {
    "k=0": Speculation(k=0),
    "model k=4": Speculation(k=4, source=DraftSource.MODEL),
    "model k=8": Speculation(k=8, source=DraftSource.MODEL),
    "ngram k=4": Speculation(k=4, source=DraftSource.NGRAM),
}


class Measured(NamedTuple):
    """One answer and how fast it came."""

    rate: float  # tok/s from the sending of the request to its end
    answer: Completion


async def measure(client: OutriderClient, prompt: str, num_tokens: int, speculation: Speculation) -> Measured:
    """One greedy answer."""
    sampling = SamplingParameters(temperature=0.0, max_tokens=num_tokens)
    start = time.perf_counter()
    answer = await client.complete(
        Chat((ChatMessage("user", prompt),)), sampling=sampling, speculation=speculation
    )
    return Measured(len(answer.token_ids) / (time.perf_counter() - start), answer)


async def run(server: str, workloads: list[str], num_tokens: int) -> None:
    """All workloads, one after the other, configurations interleaved prompt by prompt."""
    async with OutriderClient(server) as client:
        (model,) = await client.list_models()
        print(f"{model.model} {model.dtype}, {num_tokens} tokens, greedy, one session, through {server}")
        print(f"{'':24} {'tok/s':>6} {'/ k=0':>6} {'spread':>13} {'tau':>5} {'accepted':>9}")
        for workload in workloads:
            prompts = (PROMPTS / f"{workload}.txt").read_text(encoding="utf-8").splitlines()
            await measure(client, prompts[0], 16, CONFIGURATIONS["model k=4"])
            found: dict[str, list[Measured]] = {name: [] for name in CONFIGURATIONS}
            for prompt in prompts:
                for name, speculation in CONFIGURATIONS.items():
                    found[name].append(await measure(client, prompt, num_tokens, speculation))
            report(workload, found)


def report(workload: str, found: dict[str, list[Measured]]) -> None:
    """One line per configuration; raises SystemExit when ids differ."""
    plain = found["k=0"]
    for name, results in found.items():
        for one, other in zip(plain, results, strict=True):
            if one.answer.token_ids != other.answer.token_ids:
                raise SystemExit(f"{workload}, {name}: other ids than plain decoding")
        ratios = sorted(other.rate / one.rate for one, other in zip(plain, results, strict=True))
        counters = [result.answer.final.counters for result in results]
        tau = sum(c.committed for c in counters) / max(1, sum(c.rounds for c in counters))
        drafted = sum(c.drafted for c in counters)
        accepted = f"{sum(c.accepted for c in counters) / drafted:8.0%}" if drafted else "-"
        print(
            f"{workload:9} {name:14} {statistics.median(r.rate for r in results):6.1f} "
            f"{statistics.median(ratios):6.2f} {ratios[0]:6.2f}-{ratios[-1]:.2f}   {tau:5.2f} {accepted:>9}"
        )


def main() -> None:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default=DEFAULT_ADDRESS)
    parser.add_argument("--tokens", type=int, default=96, help="tokens per answer")
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="repeatable; all unless given")
    options = parser.parse_args()
    asyncio.run(run(options.server, options.workload or list(WORKLOADS), options.tokens))


if __name__ == "__main__":
    main()
