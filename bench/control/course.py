"""What the control chose, round by round, in one run of real processes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.configurations import CONFIGURATIONS, DEFAULT, GREEDY, LAYOUTS
from bench.deployments import Deployment
from bench.sink import Sink, Span
from bench.turns import answer
from bench.workloads import Prompt
from outrider.client import OutriderClient
from outrider.telemetry import Attr, SpanName

EXPORT_S = 6.0
"""Longer than the exporter's own schedule."""


async def record(
    models: str, prompts: Sequence[Prompt], num_tokens: int, say: Callable[[str], None]
) -> list[tuple[str, list[Span]]]:
    """Answer the prompts one after the other; the rounds of each, in order, beside its workload."""
    configuration = CONFIGURATIONS[DEFAULT]
    layout = LAYOUTS[configuration.layout]
    sampling = replace(GREEDY, max_tokens=num_tokens)
    asked: list[tuple[str, str]] = []
    with Sink() as sink, tempfile.TemporaryDirectory() as folder:
        traced = replace(layout, environment={**layout.environment, **sink.environment})
        deployment = await Deployment.start(models, traced, Path(folder))
        try:
            async with OutriderClient(deployment.address) as client:
                for prompt in prompts:
                    turn = await answer(client, prompt, configuration, sampling)
                    asked.append((prompt.workload, turn.trace_id))
                    say(f"{prompt.name}: {turn.rate:.1f} tok/s")
            await asyncio.sleep(EXPORT_S)
        finally:
            await deployment.stop()
        spans = sorted(sink.spans(), key=lambda span: span.start_ns)
    rounds = [span for span in spans if span.name == SpanName.ROUND]
    return [(kind, [span for span in rounds if span.trace_id == trace]) for kind, trace in asked]


def draw(course: Sequence[tuple[str, Sequence[Span]]], path: Path) -> None:
    """A point per round, coloured by who drafted; lines where the next answer begins."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.subplots()
    points: dict[str, tuple[list[int], list[int]]] = {}
    number = 0
    for kind, rounds in course:
        axes.axvline(number, color="#b8b8b8", linewidth=0.8)
        axes.text(number + 0.3, 17, kind, fontsize=8)
        for span in rounds:
            places, depths = points.setdefault(str(span.attributes.get(Attr.SOURCE, "none")), ([], []))
            places.append(number)
            depths.append(int(span.attributes.get(Attr.DRAFTED, 0)))
            number += 1
    for index, (source, (places, depths)) in enumerate(sorted(points.items())):
        axes.scatter(places, depths, s=14, color=f"C{index}", label=source)
    axes.set_xlabel("round")
    axes.set_ylabel("drafted tokens")
    axes.set_ylim(-0.5, 18)
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=130)
