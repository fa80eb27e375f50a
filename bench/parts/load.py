"""Many sessions: requests that are kept under way, or that arrive by themselves, and what came of them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from bench.configurations import Configuration
from bench.options import Options
from bench.spread import percentile
from bench.turns import Turn, answer
from bench.workloads import Prompt
from outrider.client import OutriderClient, SamplingParameters


@dataclass(frozen=True, slots=True)
class Load:
    """What a number of requests came to."""

    turns: tuple[Turn, ...]
    wall_s: float

    @property
    def throughput(self) -> float:
        """Tokens per second, all sessions together."""
        return sum(len(turn.ids) for turn in self.turns) / self.wall_s

    def figures(self) -> dict[str, float | None]:
        """Throughput, and percentiles of the waiting."""
        ttft = [turn.first_s for turn in self.turns]
        tpot = [turn.tpot_s for turn in self.turns if turn.tpot_s is not None]
        return {
            "tok_per_s": self.throughput,
            "ttft_p50_s": percentile(ttft, 0.5),
            "ttft_p95_s": percentile(ttft, 0.95),
            "tpot_p50_s": percentile(tpot, 0.5),
            "tpot_p95_s": percentile(tpot, 0.95),
        }


def fixed_length(options: Options, num_tokens: int) -> SamplingParameters:
    """Answers of one length, also past the end id: batches stay full, here and in the peer."""
    return replace(options.sampling, max_tokens=num_tokens, ignore_eos=True)


def some(prompts: Sequence[Prompt], num: int) -> list[Prompt]:
    """As many as wanted, from the beginning again when there are fewer."""
    return list(islice(cycle(prompts), num))


async def closed(
    client: OutriderClient,
    configuration: Configuration,
    sampling: SamplingParameters,
    prompts: Sequence[Prompt],
    *,
    sessions: int,
) -> Load:
    """Ask all prompts, with so many sessions under way until they run out."""
    waiting = iter(prompts)
    turns: list[Turn] = []

    async def worker() -> None:
        for prompt in waiting:
            turn = await answer(client, prompt, configuration, sampling)
            turns.append(turn)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(worker())
    return Load(tuple(turns), time.perf_counter() - start)


async def open_(
    client: OutriderClient,
    configuration: Configuration,
    sampling: SamplingParameters,
    prompts: Sequence[Prompt],
    *,
    per_s: float,
    seed: int,
) -> Load:
    """Ask all prompts at the times of a Poisson process of that rate, whatever is under way."""
    gaps = random.Random(seed)  # noqa: S311  # arrivals, not secrets
    turns: list[Turn] = []

    async def ask(prompt: Prompt, at_s: float) -> None:
        await asyncio.sleep(at_s)
        turns.append(await answer(client, prompt, configuration, sampling))

    start, at_s = time.perf_counter(), 0.0
    async with asyncio.TaskGroup() as group:
        for prompt in prompts:
            group.create_task(ask(prompt, at_s))
            at_s += gaps.expovariate(per_s)
    return Load(tuple(turns), time.perf_counter() - start)
