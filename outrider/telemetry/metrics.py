"""Metrics of one process, in a registry of its own."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from outrider.telemetry.metric import In, Kind, Metric
from outrider.telemetry.metric_names import METRICS, PEAK_MEMORY

# A second series per counter, which nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]  # as it is published


class Undeclared(LookupError):
    """A metric is not in the list of this process."""


class Reading(NamedTuple):
    """A value that is looked up when somebody scrapes; labels in the order of the declaration."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


Readings = Callable[[], Iterable[Reading]]


class Metrics:
    """The series of one process. Nothing is global, so that several may live in one interpreter.

    Series are looked up once, by `counter` and its like, and kept: what happens per round is one addition.
    Whatever can be read from elsewhere is read only when somebody scrapes (`read`).
    """

    def __init__(self, process: In) -> None:
        self.process = process
        self.registry = CollectorRegistry()
        # Where it is scraped, host:port; empty while it is not. Set by `MetricsServer`.
        self.address = ""
        self._instruments: dict[str, Any] = {}
        self._readings = _AtScrape([metric for metric in METRICS if process in metric.processes])
        ProcessCollector(registry=self.registry)
        self.registry.register(self._readings)
        self.read(lambda: [Reading(PEAK_MEMORY, _peak_memory_bytes())])

    def counter(self, metric: Metric, *labels: str) -> Counter:
        """The series of these labels, from 0 on."""
        return self._series(Counter, metric, labels)  # type: ignore[no-any-return]  # made by that class

    def gauge(self, metric: Metric, *labels: str) -> Gauge:
        """The series of these labels, 0 unless it is set."""
        return self._series(Gauge, metric, labels)  # type: ignore[no-any-return]  # made by that class

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        """The series of these labels."""
        return self._series(Histogram, metric, labels, buckets=metric.buckets)  # type: ignore[no-any-return]  # made by that class

    def read(self, readings: Readings) -> None:
        """Ask `readings` at each scrape, on a thread of the server: it must be quick, and safe there."""
        self._readings.sources.append(readings)

    def _series(self, kind: Any, metric: Metric, labels: tuple[str, ...], **options: Any) -> Any:
        instrument = self._instruments.get(metric.name)
        if instrument is None:
            if self.process not in metric.processes:
                raise Undeclared(f"{metric.name} is not declared for {self.process.value}")
            self._readings.metrics.remove(metric)
            instrument = kind(
                metric.name, metric.help, labelnames=metric.labels, registry=self.registry, **options
            )
            self._instruments[metric.name] = instrument
        return instrument.labels(*labels) if metric.labels else instrument


class _AtScrape(Collector):
    """Families whose values come from `sources`; those without a value have no series."""

    def __init__(self, metrics: list[Metric]) -> None:
        # Those that are no instruments; an instrument is taken out when it is made.
        self.metrics = metrics
        self.sources: list[Readings] = []

    def describe(self) -> Iterable[Family]:
        """Nothing: the registry would otherwise collect in order to learn the names."""
        return ()

    def collect(self) -> Iterator[Family]:
        readings: dict[str, list[Reading]] = {}
        for source in list(self.sources):
            for reading in source():
                readings.setdefault(reading.metric.name, []).append(reading)
        for metric in list(self.metrics):
            values = readings.pop(metric.name, None)
            if values is not None:
                yield _family(metric, values)
        if readings:
            raise Undeclared(f"{', '.join(sorted(readings))}: not declared for this process")


def _family(metric: Metric, readings: list[Reading]) -> Family:
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for reading in readings:
        family.add_metric(list(reading.labels), reading.value)
    return family


def _peak_memory_bytes() -> int:
    """From Linux's own record, which begins anew with each program; getrusage's goes back to its parent."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
