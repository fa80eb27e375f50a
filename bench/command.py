"""The command line: `outrider bench`, which is `python -m bench`."""

from __future__ import annotations

import asyncio
import shlex
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench import configurations, machine, plots, report, results, workloads
from bench.configurations import CONFIGURATIONS, GREEDY, LAYOUTS, ConfigurationError
from bench.deployments import StartFailed
from bench.options import Options
from bench.parts import arrivals, concurrency, engine, memory, rounds, sampled, speedup, stored
from bench.peers.peer import PeerFailed
from bench.stage import DEFAULT_PEERS, PEERS, Stage
from bench.turns import IdsDiffer
from bench.workloads import PromptError
from outrider.cli.plan import PlanError
from outrider.cli.reporting import EXIT_INTERRUPTED, EXIT_USAGE, fail
from outrider.rpc.errors import OutriderError

Part = Callable[[Stage, Options], Awaitable[dict[str, Any]]]
PARTS: dict[str, Part] = {
    "speedup": speedup.run,
    "stored": stored.run,
    "sampled": sampled.run,
    "rounds": rounds.run,
    "engine": engine.run,
    "memory": memory.run,
    "concurrency": concurrency.run,
    "arrivals": arrivals.run,
}
LOAD_PARTS = ("concurrency", "arrivals")
TARGET_PARTS = ("speedup", "sampled", "rounds", "engine", "memory", "concurrency")


@dataclass(frozen=True, slots=True)
class Preset:
    """What a run does where the flags do not say."""

    parts: tuple[str, ...]
    prompts_per_workload: int
    num_tokens: int
    configurations: tuple[str, ...]
    peers: tuple[str, ...]
    levels: tuple[int, ...]


FULL = Preset(
    parts=tuple(PARTS),
    prompts_per_workload=6,
    num_tokens=64,
    configurations=tuple(CONFIGURATIONS),
    peers=DEFAULT_PEERS,
    levels=(1, 2, 4, 8, 16),
)
SHORT = Preset(
    parts=("speedup", "sampled", "rounds", "engine", "concurrency"),
    prompts_per_workload=2,
    num_tokens=40,
    configurations=("plain", "default", "model-8"),
    peers=("hf-plain", "hf-assisted", "llama.cpp"),
    levels=(1, 8),
)
NARROW = 170
"""Columns where the output is no terminal."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def bench(
    models: Annotated[str, typer.Option(help="As for `outrider up`.")] = "qwen-coder",
    load_models: Annotated[str, typer.Option(help="Models of the parts with many sessions.")] = "smollm2",
    part: Annotated[
        list[str] | None, typer.Option(help=f"Repeatable; all unless given: {', '.join(PARTS)}, targets.")
    ] = None,
    targets: Annotated[
        bool, typer.Option("--targets", help="The parts that the target table needs, as --part targets.")
    ] = False,
    workload: Annotated[
        str, typer.Option("--workloads", help="Comma-separated; categories where --prompts is given.")
    ] = "",
    prompts: Annotated[
        Path | None, typer.Option(help="JSONL in place of the own prompts, as Spec-Bench's or HumanEval's.")
    ] = None,
    prompts_per_workload: Annotated[int | None, typer.Option(min=1, help="6, or 2 with --short.")] = None,
    configs: Annotated[
        str,
        typer.Option(
            help=f"Comma-separated: {', '.join(CONFIGURATIONS)}; or LAYOUT:k=6:min_confidence=0.4.",
            show_default="all, or a few with --short",
        ),
    ] = "",
    layout: Annotated[
        list[str] | None,
        typer.Option(help="A further layout: NAME=[VARIABLE=VALUE ...] [FLAGS of outrider up] [--no-draft]."),
    ] = None,
    peers: Annotated[
        str,
        typer.Option(
            help=f"Comma-separated, or none: {', '.join(PEERS)}.", show_default=", ".join(FULL.peers)
        ),
    ] = "",
    tokens: Annotated[int | None, typer.Option(min=2, help="Longest answer; 64, or 40 with --short.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often each prompt is asked.")] = 1,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = GREEDY.temperature,
    top_p: Annotated[float, typer.Option(help="Keep the best tokens up to this probability.")] = GREEDY.top_p,
    levels: Annotated[
        str, typer.Option(help="Sessions at a time.", show_default="1,2,4,8,16, or 1,8 with --short")
    ] = "",
    rates: Annotated[
        str, typer.Option(help="Of arrivals: shares of the saturation, or requests per second as 2/s.")
    ] = "0.25,0.5,0.75,1.0",
    minutes: Annotated[float | None, typer.Option(help="Bound of each part's measuring.")] = None,
    short: Annotated[bool, typer.Option("--short", help="Ten minutes in place of forty.")] = False,
    output: Annotated[Path, typer.Option(help="Where result folders go.")] = Path("bench/results"),
    show: Annotated[Path | None, typer.Option(help="Print and draw a result folder, no more.")] = None,
) -> None:
    """Measure how fast answers come: configurations and other programs in turns, ids compared.

    Parts: speedup (one session, all workloads, all peers), sampled (prose at temperature 0.7), rounds
    (traced: where the time goes), engine (without services), memory, concurrency, arrivals. Each part
    replaces its own figures in OUTPUT/DATE-MODELS; the table of targets takes them from there. Exit code 1:
    ids differed.
    """
    console = Console() if sys.stdout.isatty() else Console(width=NARROW)
    if show is not None:
        if not (show / results.FILE).is_file():
            fail(f"{show} holds no {results.FILE}", EXIT_USAGE)
        _show(console, show)
        return
    try:
        preset = SHORT if short else FULL
        parts = _parts([*(part or ()), *(["targets"] if targets else [])], preset)
        layouts = {**LAYOUTS, **{each.name: each for each in map(configurations.layout_of, layout or ())}}
        own = [each for name in workloads.WORKLOADS for each in workloads.workload(name)]
        options = Options(
            prompts=tuple(
                workloads.chosen(
                    workloads.from_file(prompts) if prompts else own,
                    _words(workload),
                    prompts_per_workload or preset.prompts_per_workload,
                )
            ),
            configurations=tuple(
                configurations.configuration(each, layouts)
                for each in _words(configs) or preset.configurations
            ),
            layouts=layouts,
            peers=_peers(peers, preset),
            sampling=replace(GREEDY, temperature=temperature, top_p=top_p),
            num_tokens=tokens or preset.num_tokens,
            repeats=repeats,
            short=short,
            levels=tuple(int(level) for level in _words(levels)) or preset.levels,
            rates=_words(rates),
            minutes=minutes,
            say=lambda text: console.print(text, highlight=False, soft_wrap=True),
        )
        asyncio.run(_run(models, load_models, parts, options, results.folder_for(output, models), console))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except IdsDiffer as error:
        fail(f"ids differ: {error}")
    except (ConfigurationError, PromptError, PlanError, StartFailed, PeerFailed, OutriderError) as error:
        fail(str(error), EXIT_USAGE)


async def _run(
    models: str, load_models: str, parts: list[str], options: Options, folder: Path, console: Console
) -> None:
    about: dict[str, Any] = {
        "models": models,
        "machine": machine.describe(),
        "command": shlex.join(["outrider", "bench", *sys.argv[1:]]),
    }
    options.say(machine.in_words(about["machine"]))
    with tempfile.TemporaryDirectory(prefix="outrider-bench-") as logs:
        for served in dict.fromkeys((models, load_models)):
            async with Stage(served, Path(logs), options.say) as stage:
                for name in parts:
                    if served != (load_models if name in LOAD_PARTS else models):
                        continue
                    options.say(f"part {name}")
                    found = await PARTS[name](stage, options)
                    results.store(folder, name, found, **{**about, "models": served})
                    report.show(console, name, found)
    document = results.load(folder)
    report.show_targets(console, document)
    _draw(console, document, folder)


def _show(console: Console, folder: Path) -> None:
    document = results.load(folder)
    for name, found in document["parts"].items():
        report.show(console, name, found)
    report.show_targets(console, document)
    _draw(console, document, folder)


def _draw(console: Console, document: dict[str, Any], folder: Path) -> None:
    try:
        drawn = plots.draw(document, folder)
    except ImportError:
        console.print("no pictures: install the extra `bench` (matplotlib)", highlight=False)
        drawn = []
    names = ", ".join([results.FILE, *(path.name for path in drawn)])
    console.print(f"written to {folder}: {names}", highlight=False, soft_wrap=True)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _parts(wanted: list[str], preset: Preset) -> list[str]:
    unknown = [name for name in wanted if name not in (*PARTS, "targets")]
    if unknown:
        known = ", ".join((*PARTS, "targets"))
        raise ConfigurationError(f"part {unknown[0]!r} is not known; take some of {known}")
    chosen = {*wanted, *(TARGET_PARTS if "targets" in wanted else ())} or {*preset.parts}
    return [name for name in PARTS if name in chosen]


def _peers(text: str, preset: Preset) -> tuple[str, ...]:
    names = () if text == "none" else _words(text) or preset.peers
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        known = ", ".join((*PEERS, "none"))
        raise ConfigurationError(f"peer {unknown[0]!r} is not known; take some of {known}")
    return names
