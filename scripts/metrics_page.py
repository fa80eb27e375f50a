"""Write docs/metrics.md from the list of metrics, or with --check compare it with what would be written."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from outrider.telemetry.metric import In, Metric
from outrider.telemetry.metric_names import METRICS, ONLY_WITH_GPU, STANDARD

HERE = Path(__file__).resolve()
PAGE = HERE.parent.parent / "docs" / "metrics.md"
INTRODUCTION = HERE.with_suffix(".md")

TITLES = {
    In.GATEWAY: "Gateway",
    In.SCHEDULER: "Scheduler",
    In.VALIDATOR: "Validator and draft",
}


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION.read_text(encoding="utf-8"), *_tables()])


def _tables() -> Iterator[str]:
    for process, title in TITLES.items():
        yield from _table(title, [metric for metric in METRICS if process in metric.processes])
    yield "## Every process, by Prometheus' own convention (Linux)\n"
    yield ", ".join(f"`{name}`" for name in STANDARD) + ".\n"


def _table(title: str, metrics: list[Metric]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| metric | type | definition | labels |\n|---|---|---|---|"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        gpu = " (GPU)" if metric in ONLY_WITH_GPU else ""
        yield f"| `{metric.name}` | {metric.kind.value}{gpu} | {metric.help} | {labels} |"
    yield ""


def main() -> int:
    """Run; the exit status is 1 when --check found a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    if parser.parse_args().check:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        if not current:
            print("docs/metrics.md is not what the list of metrics gives: run `make docs`")
        return int(not current)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
