"""Requests that arrive by themselves, at shares of the rate that saturates the deployment."""

from __future__ import annotations

from typing import Any

from bench.options import Options
from bench.parts.load import closed, fixed_length, open_, some
from bench.stage import Stage

TOKENS = 32
SATURATED = 16
NUM_REQUESTS = 24
SEED = 7
NAMES = ("plain", "default")


async def run(stage: Stage, options: Options) -> dict[str, Any]:
    """The saturation of each configuration first, then every rate."""
    chosen = options.usable(has_draft=stage.has_draft, names=NAMES)
    await stage.only({each.layout for each in chosen})
    sampling = fixed_length(options, TOKENS)
    num_requests = NUM_REQUESTS // 2 if options.short else NUM_REQUESTS
    found: dict[str, Any] = {}
    for each in chosen:
        client = await stage.client(options.layout(each))
        await closed(client, each, sampling, some(options.prompts, 2), sessions=2)
        full = await closed(client, each, sampling, some(options.prompts, 2 * SATURATED), sessions=SATURATED)
        saturation = full.throughput / TOKENS
        options.say(f"{each.name}: saturated at {saturation:.2f} requests/s")
        rates: dict[str, Any] = {}
        for rate in options.rates:
            per_s = float(rate.removesuffix("/s")) * (1 if rate.endswith("/s") else saturation)
            load = await open_(
                client, each, sampling, some(options.prompts, num_requests), per_s=per_s, seed=SEED
            )
            rates[rate] = {"requests_per_s": per_s, **load.figures()}
            options.say(f"{each.name} at {per_s:.2f} requests/s: {load.throughput:.1f} tok/s")
        found[each.name] = {"saturation_requests_per_s": saturation, "rates": rates}
    return {"models": stage.models, "num_tokens": TOKENS, "summary": found}
