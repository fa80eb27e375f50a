"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.anatomy import SLICES
from bench.targets import Document, measured

SPREAD_NOTE = (
    "Ratios are medians over pairs of turns (in brackets quartiles; of fewer than four, the extremes)."
)
Found = Mapping[str, Any]
MIB = 1 << 20


def show(console: Console, part: str, found: Found) -> None:
    """The tables of one part."""
    for table in _TABLES[part](part, found):
        _print(console, table)


def show_targets(console: Console, document: Document) -> None:
    """The target table."""
    table = _table("targets", "", "must", "aim", "measured", "reached", "of")
    for target, found in measured(document):
        sign = "<= " if target.at_most else ""
        digits = target.digits
        if found is None:
            figure, verdict, note = "-", "not measured", ""
        else:
            figure, verdict, note = f"{found.value:.{digits}f}", target.verdict(found.value), found.note
            if found.low is not None and found.high is not None:
                figure += f" ({found.low:.{digits}f}-{found.high:.{digits}f})"
        table.add_row(target.title, f"{sign}{target.must:g}", f"{sign}{target.aim:g}", figure, verdict, note)
    _print(console, table)
    console.print(SPREAD_NOTE)


def number(found: Found | None, digits: int = 2) -> str:
    """A spread's median."""
    return "-" if not found else f"{found['median']:.{digits}f}"


def with_spread(found: Found | None, digits: int = 2) -> str:
    """A spread in full."""
    if not found:
        return "-"
    low, high = f"{found['low']:.{digits}f}", f"{found['high']:.{digits}f}"
    return f"{found['median']:.{digits}f} ({low}-{high})"


def _print(console: Console, table: Table) -> None:
    # A title of its own line: it would be folded to the width of its table.
    title, table.title = table.title, None
    console.print(title, style="bold", highlight=False)
    console.print(table)
    console.print()


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    return table


def _speedup(part: str, found: Found) -> list[Table]:
    tables = []
    for workload, subjects in found["summary"].items():
        bases = list(dict.fromkeys(base for each in subjects.values() for base in each["to"]))
        title = f"{part}: {workload}, {found['num_tokens']} tokens, temperature {found['temperature']:g}"
        ratios = (f"/ {base}" for base in bases)
        table = _table(title, "", "tok/s", *ratios, "TTFT s", "TTFT / plain", "TPOT ms", "tau", "accepted")
        for name, each in subjects.items():
            tpot = each["tpot_s"]
            table.add_row(
                name,
                number(each["tok_per_s"], 1),
                *(
                    with_spread(each["to"].get(base)) if base == "plain" else number(each["to"].get(base))
                    for base in bases
                ),
                number(each["ttft_s"]),
                number(each.get("ttft_to_plain")),
                f"{tpot['median'] * 1000:.0f}" if tpot else "-",
                f"{each['tau']:.2f}" if "tau" in each else "-",
                f"{each['acceptance']:.0%}" if each.get("acceptance") is not None else "-",
            )
        tables.append(table)
    memory = _table("peak memory", "", "MiB")
    for name, size in found["peak_memory_bytes"].items():
        memory.add_row(name, "-" if size is None else f"{size / MIB:.0f}")
    return [*tables, memory]


def _rounds(_part: str, found: Found) -> list[Table]:
    headings = ("ms", *SLICES, "bytes", "accepted at 1, 2, ...")
    table = _table("rounds, from traces", "", *headings)
    for workload, configurations in found["summary"].items():
        for name, each in configurations.items():
            if not each:
                continue
            pairs = zip(each["drafted_by_position"], _padded(each), strict=True)
            size = each["bytes_per_round"]
            table.add_row(
                f"{workload}: {name}",
                f"{each['round_s'] * 1000:.0f}",
                *(f"{each['slices'][slice_]:.1%}" for slice_ in SLICES),
                "-" if size is None else f"{size:.0f}",
                " ".join(f"{accepted / drafted:.0%}" for drafted, accepted in pairs) or "-",
            )
    cost = _table("tracing every round", "", "traced / untraced")
    cost.add_row(found["reference"], with_spread(found["traced_to_untraced"], 3))
    return [table, cost]


def _padded(each: Found) -> list[int]:
    accepted = list(each["accepted_by_position"])
    return accepted + [0] * (len(each["drafted_by_position"]) - len(accepted))


def _engine(_part: str, found: Found) -> list[Table]:
    table = _table("the same engine in one process", "", "tok/s", "/ through the services")
    for name, rate in found["tok_per_s"].items():
        ratio = found["one_process_to_services"].get(name.removesuffix(", one process"))
        table.add_row(name, number(rate, 1), with_spread(ratio) if name.endswith("one process") else "")
    share = _table("choosing tokens, T = 1", "", "share of a k = 0 step")
    share.add_row("one process", with_spread(found["sampling_share"], 3))
    return [table, share]


def _concurrency(_part: str, found: Found) -> list[Table]:
    title = f"concurrency: {found['models']}, {found['num_tokens']} tokens"
    headings = ("tok/s", "/ 1 at a time", "/ HF batch of 8", "TTFT p50 s", "p95", "TPOT p50 ms", "p95")
    table = _table(title, "", *headings)
    for name, levels in found["summary"].items():
        for level, each in levels.items():
            table.add_row(
                f"{name}, {level} at a time",
                number(each["tok_per_s"], 1),
                with_spread(each["to_one"]),
                with_spread(each.get("to_hf_batch")),
                *_waits(each),
            )
    table.add_row("hf-plain, one batch of 8", number(found["hf_batch_tok_per_s"], 1))
    return [table]


def _arrivals(_part: str, found: Found) -> list[Table]:
    title = f"Poisson arrivals: {found['models']}, {found['num_tokens']} tokens"
    table = _table(title, "", "requests/s", "tok/s", "TTFT p50 s", "p95", "TPOT p50 ms", "p95")
    for name, each in found["summary"].items():
        table.add_row(f"{name}, saturated", f"{each['saturation_requests_per_s']:.2f}")
        for rate, figures in each["rates"].items():
            row = (f"{figures['requests_per_s']:.2f}", f"{figures['tok_per_s']:.1f}")
            table.add_row(f"{name}, {rate}", *row, *_waits(figures))
    return [table]


def _waits(each: Found) -> list[str]:
    seconds = [each["ttft_p50_s"], each["ttft_p95_s"]]
    steps = [each["tpot_p50_s"], each["tpot_p95_s"]]
    return [
        *("-" if value is None else f"{value:.2f}" for value in seconds),
        *("-" if value is None else f"{value * 1000:.0f}" for value in steps),
    ]


def _memory(_part: str, found: Found) -> list[Table]:
    table = _table("memory of a validator", "", "MiB")
    for key, value in found.items():
        if key.endswith("_bytes"):
            table.add_row(key.removesuffix("_bytes").replace("_", " "), f"{value / MIB:.0f}")
    return [table]


def _stored(_part: str, found: Found) -> list[Table]:
    table = _table("what the store is worth, ids equal", "", "ratio of tok/s")
    for name, ratio in found["summary"].items():
        table.add_row(name, with_spread(ratio))
    return [table]


_TABLES: dict[str, Callable[[str, Found], list[Table]]] = {
    "speedup": _speedup,
    "sampled": _speedup,
    "rounds": _rounds,
    "engine": _engine,
    "concurrency": _concurrency,
    "arrivals": _arrivals,
    "memory": _memory,
    "stored": _stored,
}
