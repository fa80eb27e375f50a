"""The target table: what must be reached, what is aimed at, what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.configurations import DEFAULT, PLAIN

Document = Mapping[str, Any]
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure with its quartiles, where there are some, and which configuration gave it."""

    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """One row."""

    title: str
    must: float
    aim: float
    measure: Callable[[Document], Measured | None]
    at_most: bool = False
    digits: int = 2

    def verdict(self, value: float) -> str:
        """Which of the two is reached."""
        sign = -1 if self.at_most else 1
        if sign * value >= sign * self.aim:
            return "aim"
        return "must" if sign * value >= sign * self.must else "missed"


def rows() -> list[Target]:
    """All rows, one per workload where they differ."""
    found = [
        Target(f"k = 0 / Hugging Face plain: {workload}", 1.5, 2.0, _ratio(workload, PLAIN, "hf-plain"))
        for workload in ("json", "code", "prose")
    ]
    for title, base, limits in (
        (
            "best / Hugging Face assisted",
            "hf-assisted",
            {"json": (2.5, 4), "code": (3.5, 5), "prose": (2.2, 4)},
        ),
        ("best / llama.cpp plain", "llama.cpp", {"json": (1.15, 1.5), "code": (1.1, 1.5)}),
        ("best / own plain", PLAIN, {"json": (2.0, 3.8), "code": (1.8, 3.0), "prose": (1.3, 1.8)}),
    ):
        found += [
            Target(f"{title}: {workload}", must, aim, _ratio(workload, None, base))
            for workload, (must, aim) in limits.items()
        ]
    return [
        *found,
        Target("one process / through the services: k = 0", 1.12, 1.03, _engine("plain"), at_most=True),
        Target("one process / through the services: drafted", 1.12, 1.03, _engine("k="), at_most=True),
        Target("sampling share of a k = 0 step, T = 1", 0.05, 0.02, _sampling_share, at_most=True, digits=3),
        Target(
            "prose at T 0.7, top-p 0.92: best / own plain", 1.2, 1.6, _ratio("prose", None, PLAIN, "sampled")
        ),
        Target("8 at a time / 1", 3.0, 5.0, _concurrent("to_one")),
        Target("8 at a time / Hugging Face batch of 8", 1.0, 1.5, _concurrent("to_hf_batch")),
        Target("TTFT with speculation / plain", 1.05, 1.0, _ttft, at_most=True),
        Target("every round traced / untraced", 0.97, 0.99, _traced),
        Target("validator beyond weights, KV, interpreter (MB)", 300, 150, _memory, at_most=True, digits=0),
    ]


def measured(document: Document) -> Iterator[tuple[Target, Measured | None]]:
    """Each row with its figure; None where the part that gives it was not run."""
    for target in rows():
        yield target, target.measure(document)


def best(document: Document, workload: str, part: str = "speedup") -> str | None:
    """The configuration that is fastest against plain decoding, pair by pair."""
    found = document["parts"].get(part)
    if found is None or workload not in found["summary"]:
        return None
    figures = found["summary"][workload]
    rated = {
        name: figures[name]["to"][PLAIN]["median"]
        for name in found["configurations"]
        if name != PLAIN and name in figures and figures[name]["to"].get(PLAIN)
    }
    return max(rated, key=rated.__getitem__) if rated else None


def _ratio(
    workload: str, name: str | None, base: str, part: str = "speedup"
) -> Callable[[Document], Measured | None]:
    """Speed of a configuration, None: the best one, against `base`."""

    def measure(document: Document) -> Measured | None:
        chosen = name or best(document, workload, part)
        found = document["parts"].get(part)
        if found is None or chosen not in found["summary"].get(workload, {}):
            return None
        note = "" if name else chosen or ""
        return _spread(found["summary"][workload][chosen]["to"].get(base), note)

    return measure


def _engine(prefix: str) -> Callable[[Document], Measured | None]:
    def measure(document: Document) -> Measured | None:
        ratios = document["parts"].get("engine", {}).get("one_process_to_services", {})
        chosen = next((name for name in ratios if name.startswith(prefix)), None)
        return _spread(ratios[chosen], chosen or "") if chosen else None

    return measure


def _sampling_share(document: Document) -> Measured | None:
    return _spread(document["parts"].get("engine", {}).get("sampling_share"))


def _concurrent(key: str) -> Callable[[Document], Measured | None]:
    def measure(document: Document) -> Measured | None:
        summary = document["parts"].get("concurrency", {}).get("summary", {})
        found = {name: levels["8"].get(key) for name, levels in summary.items() if "8" in levels}
        rated = {name: value for name, value in found.items() if value}
        if not rated:
            return None
        chosen = PLAIN if PLAIN in rated else next(iter(rated))
        return _spread(rated[chosen], chosen)

    return measure


def _ttft(document: Document) -> Measured | None:
    """Of what a user gets, or else of the best; the workload where it is worst."""
    summary = document["parts"].get("speedup", {}).get("summary", {})
    worst: Measured | None = None
    for workload, figures in summary.items():
        name = DEFAULT if DEFAULT in figures else best(document, workload)
        found = _spread(figures.get(name, {}).get("ttft_to_plain"), f"{name}, {workload}")
        if found is not None and (worst is None or found.value > worst.value):
            worst = found
    return worst


def _traced(document: Document) -> Measured | None:
    found = document["parts"].get("rounds", {})
    return _spread(found.get("traced_to_untraced"), found.get("reference", ""))


def _memory(document: Document) -> Measured | None:
    found = document["parts"].get("memory")
    if found is None:
        return None
    return Measured(found["beyond_bytes"] / MB, note=f"at its peak {found['peak_beyond_bytes'] / MB:.0f}")


def _spread(found: Mapping[str, float] | None, note: str = "") -> Measured | None:
    return Measured(found["median"], found["low"], found["high"], note) if found else None
