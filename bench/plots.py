"""Pictures of a result: PNG files beside the document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.anatomy import SLICES
from bench.configurations import PLAIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f5fa8", "#9dbfe3", "#c2571a", "#efb98f", "#b8b8b8")
DPI = 130


def draw(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw what the document has; the files written.

    Raises ImportError where matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    parts, written = document["parts"], []
    for part, name, painter in (
        ("speedup", "speedup.png", _speedup),
        ("sampled", "speedup-sampled.png", _speedup),
        ("concurrency", "concurrency.png", _concurrency),
        ("rounds", "rounds.png", _rounds),
    ):
        if part not in parts:
            continue
        figure = Figure(layout="constrained")
        painter(figure, parts[part])
        path = folder / name
        figure.savefig(path, dpi=DPI)
        written.append(path)
    return written


def _speedup(figure: Figure, found: Mapping[str, Any]) -> None:
    """Bars: speed against plain decoding, per workload."""
    summary = found["summary"]
    names = [name for name in next(iter(summary.values())) if name != PLAIN]
    figure.set_size_inches(min(14.0, 5.0 + 0.35 * len(names) * len(summary)), 4.8)
    axes = figure.subplots()
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        cells = [
            (place, each[name]["to"].get(PLAIN))
            for place, each in enumerate(summary.values())
            if name in each
        ]
        bars = [(place, cell) for place, cell in cells if cell]
        axes.bar(
            [place + (index - (len(names) - 1) / 2) * width for place, _ in bars],
            [cell["median"] for _, cell in bars],
            width,
            yerr=[
                [max(0.0, cell["median"] - cell["low"]) for _, cell in bars],
                [max(0.0, cell["high"] - cell["median"]) for _, cell in bars],
            ],
            label=name,
            color=f"C{index % 10}",
            hatch=None if name in found["configurations"] else "//",
            capsize=2,
        )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(summary)), list(summary))
    axes.set_ylabel("speed / plain decoding")
    axes.set_title(f"{found.get('models', '')}: medians and quartiles; hatched: other programs", fontsize=10)
    figure.legend(loc="outside lower center", ncols=6, fontsize=8)


def _concurrency(figure: Figure, found: Mapping[str, Any]) -> None:
    """Two curves against the number of sessions."""
    figure.set_size_inches(9, 4)
    left, right = figure.subplots(1, 2)
    for name, levels in found["summary"].items():
        numbers = [int(level) for level in levels]
        left.plot(numbers, [each["tok_per_s"]["median"] for each in levels.values()], marker="o", label=name)
        tpot = [(each["tpot_p50_s"] or 0.0) * 1000 for each in levels.values()]
        right.plot(numbers, tpot, marker="o", label=name)
    if found["hf_batch_tok_per_s"]:
        left.plot([8], [found["hf_batch_tok_per_s"]["median"]], "kx", label="Hugging Face, batch of 8")
    _label(left, "tokens per second, all sessions")
    _label(right, "milliseconds per token, median")
    figure.suptitle(f"{found.get('models', '')}, {found['num_tokens']} tokens", fontsize=10)


def _label(axes: Axes, what: str) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("sessions at a time")
    axes.set_ylabel(what)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)


def _rounds(figure: Figure, found: Mapping[str, Any]) -> None:
    """One stacked bar per workload and configuration."""
    bars = [
        (f"{workload}: {name}", each)
        for workload, configurations in found["summary"].items()
        for name, each in configurations.items()
        if each
    ]
    figure.set_size_inches(8, 0.8 + 0.32 * len(bars))
    axes = figure.subplots()
    offsets = [0.0] * len(bars)
    for name, colour in zip(SLICES, COLOURS, strict=True):
        widths = [each["slices"][name] * 100 for _, each in bars]
        axes.barh(range(len(bars)), widths, left=offsets, color=colour, label=name)
        offsets = [offset + width for offset, width in zip(offsets, widths, strict=True)]
    axes.set_yticks(
        range(len(bars)), [f"{name} ({each['round_s'] * 1000:.0f} ms)" for name, each in bars], fontsize=8
    )
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("per cent of a round")
    figure.legend(loc="outside lower center", ncols=len(SLICES), fontsize=8)
