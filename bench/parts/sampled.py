"""Prose at the articles' temperature: every configuration against plain decoding, ids compared as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.configurations import SAMPLED
from bench.options import Options
from bench.parts.speedup import compare
from bench.stage import Stage

WORKLOAD = "prose"


async def run(stage: Stage, options: Options) -> dict[str, Any]:
    """All configurations, on prose where that is among the prompts."""
    prose = tuple(prompt for prompt in options.prompts if prompt.workload == WORKLOAD)
    chosen = replace(options, prompts=prose or options.prompts)
    return await compare(stage, chosen, SAMPLED, peers=(), minutes=options.limit(full=4, short=0.7))
