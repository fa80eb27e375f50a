"""Every configuration with every round traced: where the time goes; and what the tracing itself costs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from bench.anatomy import anatomy
from bench.configurations import DEFAULT, PLAIN, Configuration, Layout
from bench.contest import Contest, hold
from bench.options import Options
from bench.parts.speedup import as_json
from bench.sink import Sink
from bench.spread import spread
from bench.stage import Stage

TRACED = "-traced"
EXPORT_S = 6.0
"""Longer than the exporter's own schedule of 5 s: the last spans are under way until then."""
TOKENS = 64


async def run(stage: Stage, options: Options) -> dict[str, Any]:
    """One contest: the reference untraced, all configurations traced."""
    usable = options.usable(has_draft=stage.has_draft)
    reference = next((each for each in usable if each.name == DEFAULT), usable[0])
    with Sink() as sink:
        traced = [_traced(each, options.layout(each), sink) for each in usable]
        layouts = {layout.name: layout for _, layout in traced}
        await stage.only({reference.layout, *layouts})
        subjects = [await stage.ours(reference, options.layout(reference), options.sampling)]
        subjects += [await stage.ours(each, layout, options.sampling) for each, layout in traced]
        contest = await hold(
            subjects,
            options.prompts,
            num_tokens=min(TOKENS, options.num_tokens),
            exact=[subject.name for subject in subjects],
            minutes=options.limit(full=3.5, short=1),
            say=options.say,
        )
        await asyncio.sleep(EXPORT_S)
        spans = sink.spans()
        # Their collector goes away now.
        await stage.only({reference.layout})
    pairs = contest.pairs(reference.name + TRACED, reference.name)
    return {
        "reference": reference.name,
        "traced_to_untraced": as_json(spread(one.rate / other.rate for one, other in pairs)),
        "summary": {
            workload: {
                each.name: anatomy(spans, _trace_ids(contest, each.name + TRACED, workload))
                for each in usable
            }
            for workload in contest.workloads
        },
        "num_spans": len(spans),
        "plain": PLAIN,
    }


def _traced(configuration: Configuration, layout: Layout, sink: Sink) -> tuple[Configuration, Layout]:
    name = layout.name + TRACED
    return (
        replace(configuration, name=configuration.name + TRACED, layout=name),
        replace(layout, name=name, environment={**layout.environment, **sink.environment}),
    )


def _trace_ids(contest: Contest, subject: str, workload: str) -> list[str]:
    return [turn.trace_id for turn in contest.of(subject, workload) if turn.trace_id]
