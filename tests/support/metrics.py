"""A process's /metrics as numbers."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.cluster import Process


@dataclass(frozen=True)
class Scrape:
    """All samples of one scrape."""

    samples: tuple[Sample, ...]
    families: frozenset[str]

    def total(self, name: str, **labels: str) -> float:
        """The sum of the series of `name` (without the prefix) that have these labels."""
        return sum(sample.value for sample in self._matching(f"outrider_{name}", labels))

    def values(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """The series of `name` (without the prefix) by one label."""
        found = self._matching(f"outrider_{name}", labels)
        return {sample.labels[label]: sample.value for sample in found}

    def labels(self, name: str) -> list[dict[str, str]]:
        """The labels of each series of `name`, without the prefix."""
        return [sample.labels for sample in self._matching(f"outrider_{name}", {})]

    def _matching(self, name: str, labels: dict[str, str]) -> Iterable[Sample]:
        return [
            sample
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]


def parsed(text: str) -> Scrape:
    families = list(text_string_to_metric_families(text))
    samples = tuple(sample for family in families for sample in family.samples)
    # The parser takes the suffix of a counter away.
    names = frozenset(
        f"{family.name}_total" if family.type == "counter" else family.name for family in families
    )
    return Scrape(samples, names)


def scrape_address(address: str) -> Scrape:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        return parsed(response.read().decode())


def scrape(process: Process) -> Scrape:
    """What Prometheus would get of a process that was started with `--metrics-port 0`."""
    ready = json.loads(process.ready_file.read_text(encoding="utf-8"))
    return scrape_address(ready["metrics"])
