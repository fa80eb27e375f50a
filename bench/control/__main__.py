"""`python -m bench.control record|replay TRACE`, `python -m bench.control course PNG`."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.control.traces import read, write
from bench.control.world import Costs, PolicyOf, Result, replay
from bench.workloads import WORKLOADS, chosen, workload
from services.scheduler.control.adaptive import AdaptivePolicy
from services.scheduler.control.bandit import BanditPolicy
from services.scheduler.control.fixed import FixedPolicy
from services.scheduler.control.shared import Shared

FIXED = (0, 1, 2, 4, 6, 8, 12, 16)
LOADS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


def _fixed(k: int, min_confidence: float, _: Shared, __: str) -> FixedPolicy:
    return FixedPolicy(k, min_confidence)


POLICIES: dict[str, PolicyOf] = {
    **{f"k={k}": partial(_fixed, k, 0.0) for k in FIXED},
    "k=16, sure": partial(_fixed, 16, 0.5),
    "adaptive": AdaptivePolicy,
    "bandit": lambda _, __: BanditPolicy(0.5),
}
app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command(name="record")
def record_(
    path: Annotated[Path, typer.Argument(help="File to write.")],
    target: Annotated[str, typer.Option(help="As for a validator's --model.")] = "qwen-coder-1.5b",
    draft: Annotated[str, typer.Option(help="As for a draft's --model.")] = "qwen-coder-0.5b",
    tokens: Annotated[int, typer.Option(help="Longest answer.")] = 96,
    prompts_per_workload: Annotated[int, typer.Option(help="Of the own prompts.")] = 4,
) -> None:
    """Answer prompts, and draft at every position of the answers; takes about half a minute for each."""
    from bench.control.traces import record
    from bench.prompt_ids import encoder
    from outrider.runtime.loading import load_runtime

    encode = encoder(target)
    prompts = chosen([each for name in WORKLOADS for each in workload(name)], WORKLOADS, prompts_per_workload)
    traces = record(
        load_runtime(target, dtype="bfloat16"),
        load_runtime(draft, dtype="int4"),
        [(prompt, encode(prompt.text)) for prompt in prompts],
        tokens,
        typer.echo,
    )
    write(traces, path)
    typer.echo(f"written to {path}")


@app.command(name="replay")
def replay_(
    path: Annotated[Path, typer.Argument(help="A file of `record`.")],
    requests: Annotated[int, typer.Option(help="Of each load.")] = 60,
    seeds: Annotated[int, typer.Option(help="Runs of each load.")] = 3,
    ask_ms: Annotated[float, typer.Option(help="Way to the draft and back; 20 is a slow network.")] = 3.0,
    picture: Annotated[Path | None, typer.Option(help="PNG to draw.")] = None,
    output: Annotated[Path | None, typer.Option(help="JSON to write.")] = None,
) -> None:
    """Serve the traces at loads from a tenth to twice the saturation of plain decoding, with every policy."""
    traces, costs = read(path), Costs(ask_s=ask_ms / 1000)
    saturated = replay(traces, POLICIES["k=0"], 1e6, requests, costs)
    mean_tokens = sum(len(trace.output) for trace in traces) / len(traces)
    rate = saturated.throughput / mean_tokens
    typer.echo(f"plain decoding saturates at {rate:.3f} requests/s; seconds per token, queue included:")
    typer.echo("load\t" + "\t".join(POLICIES) + "\tadaptive / best")
    found: dict[str, dict[str, float]] = {}
    for load in LOADS:
        row = {
            name: _mean([replay(traces, policy, load * rate, requests, costs, seed) for seed in range(seeds)])
            for name, policy in POLICIES.items()
        }
        found[str(load)] = row
        best = min(row[f"k={k}"] for k in FIXED)
        cells = "\t".join(f"{seconds:.4f}" for seconds in row.values())
        typer.echo(f"{load}\t{cells}\t{row['adaptive'] / best:.3f}")
    by_workload = _alone(traces, costs, requests)
    for name, row in by_workload.items():
        fixed = max(row[f"k={k}"] for k in FIXED)
        cells = "  ".join(f"{policy} {rate:.1f}" for policy, rate in row.items())
        typer.echo(
            f"{name}, one at a time, tok/s: {cells}; adaptive / best fixed {row['adaptive'] / fixed:.3f}"
        )
    if output is not None:
        output.write_text(
            json.dumps({"loads": found, "one_at_a_time": by_workload}, indent=1), encoding="utf-8"
        )
    if picture is not None:
        _draw(found, picture)


@app.command(name="course")
def course_(
    picture: Annotated[Path, typer.Argument(help="PNG to draw.")],
    models: Annotated[str, typer.Option(help="As for `outrider up`.")] = "qwen-coder",
    tokens: Annotated[int, typer.Option(help="Longest answer.")] = 64,
    prompts_per_workload: Annotated[int, typer.Option(help="Of the own prompts.")] = 3,
) -> None:
    """Draw what the control chose, round by round, in one run of real processes."""
    from bench.control import course

    prompts = chosen([each for name in WORKLOADS for each in workload(name)], WORKLOADS, prompts_per_workload)
    course.draw(asyncio.run(course.record(models, prompts, tokens, typer.echo)), picture)


def _mean(results: list[Result]) -> float:
    return sum(result.mean_per_token_s for result in results) / len(results)


def _alone(traces: list[Any], costs: Costs, requests: int) -> dict[str, dict[str, float]]:
    """Tokens per second of one session at a time: each workload, and all of them in turns."""
    groups = {name: [trace for trace in traces if trace.workload == name] for name in WORKLOADS}
    groups["mixed"] = traces
    return {
        group: {
            name: replay(members, policy, 1e-3, requests, costs).speed for name, policy in POLICIES.items()
        }
        for group, members in groups.items()
        if members
    }


def _draw(found: dict[str, dict[str, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    loads = [float(load) for load in found]
    for name in POLICIES:
        bold = name == "adaptive"
        axes.plot(
            loads,
            [row[name] for row in found.values()],
            label=name,
            linewidth=2.5 if bold else 1.0,
            color="black" if bold else None,
        )
    axes.set_xlabel("load / saturation of plain decoding")
    axes.set_ylabel("seconds per token, queue included")
    axes.set_yscale("log")
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    app()
