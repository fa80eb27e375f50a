"""Throughput with 1 to 16 sessions at a time, beside Hugging Face `generate` on a batch of 8."""

from __future__ import annotations

from typing import Any

from bench.configurations import Configuration
from bench.options import Options
from bench.parts.load import Load, closed, fixed_length, some
from bench.parts.speedup import as_json, describe
from bench.spread import spread
from bench.stage import HUGGING_FACE, Stage
from bench.turns import Turn, check_equal

TOKENS = 64
BATCH = 8
NAMES = ("plain", "default")


async def run(stage: Stage, options: Options) -> dict[str, Any]:
    """Levels in turn, and the peer behind the level of its batch, all of that a few times."""
    chosen = options.usable(has_draft=stage.has_draft, names=NAMES)
    with_peer = "hf-plain" in options.peers
    await stage.only({*(each.layout for each in chosen), *([HUGGING_FACE] if with_peer else [])})
    sampling = fixed_length(options, TOKENS if not options.short else TOKENS // 2)
    clients = {each.name: await stage.client(options.layout(each)) for each in chosen}
    peer = await stage.peer(HUGGING_FACE) if with_peer else None
    loads: dict[str, dict[int, list[Load]]] = {
        each.name: {level: [] for level in options.levels} for each in chosen
    }
    batches: list[float] = []
    first: dict[str, tuple[str, Turn]] = {}

    async def level_of(each: Configuration, level: int) -> Load:
        # Two waves: the second begins while others are under way.
        prompts = some(options.prompts, max(4, 2 * level) if level < BATCH else 2 * level)
        load = await closed(clients[each.name], each, sampling, prompts, sessions=level)
        for turn in load.turns:
            name, expected = first.setdefault(turn.prompt.name, (f"{each.name} at {level}", turn))
            check_equal(expected, name, turn, f"{each.name} at {level}")
        return load

    for each in chosen:
        await closed(clients[each.name], each, sampling, some(options.prompts, 2), sessions=2)
    if peer is not None:
        await _batch(stage, options, sampling.max_tokens)
    repeats = 1 if options.short else 2
    for repeat in range(repeats):
        for level in options.levels:
            for each in chosen:
                load = await level_of(each, level)
                loads[each.name][level].append(load)
                options.say(
                    f"{repeat + 1}/{repeats} {each.name}, {level} at a time: {load.throughput:.1f} tok/s"
                )
            if level == BATCH and peer is not None:
                batches.append(await _batch(stage, options, sampling.max_tokens))
                options.say(f"{repeat + 1}/{repeats} hf-plain, one batch of {BATCH}: {batches[-1]:.1f} tok/s")
    return {
        "models": stage.models,
        "num_tokens": sampling.max_tokens,
        "configurations": {each.name: describe(each, options) for each in chosen},
        "summary": {each.name: _levels(loads[each.name], batches) for each in chosen},
        "hf_batch_tok_per_s": as_json(spread(batches)),
    }


async def _batch(stage: Stage, options: Options, num_tokens: int) -> float:
    """Tokens per second of the peer on one batch, padded on the left."""
    peer = await stage.peer(HUGGING_FACE)
    if peer is None:
        raise RuntimeError("the peer has gone")
    prompts = [list(stage.encode(prompt.text)) for prompt in some(options.prompts, BATCH)]
    answer = await peer.ask({"mode": "plain", "prompts": prompts, "num_tokens": num_tokens, "fixed": True})
    return float(BATCH * num_tokens / answer["total_s"])


def _levels(loads: dict[int, list[Load]], batches: list[float]) -> dict[str, Any]:
    at_one = [load.throughput for load in loads.get(1, [])]
    found: dict[str, Any] = {}
    for level, repeated in loads.items():
        rates = [load.throughput for load in repeated]
        figures: dict[str, Any] = {
            key: _median([load.figures()[key] for load in repeated]) for key in repeated[0].figures()
        }
        figures["tok_per_s"] = as_json(spread(rates))
        figures["to_one"] = as_json(spread(a / b for a, b in zip(rates, at_one, strict=False)))
        if level == BATCH:
            figures["to_hf_batch"] = as_json(spread(a / b for a, b in zip(rates, batches, strict=False)))
        found[str(level)] = figures
    return found


def _median(values: list[float | None]) -> float | None:
    found = spread(value for value in values if value is not None)
    return found.median if found else None
