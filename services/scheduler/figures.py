"""What the whole scheduler did in the last seconds, as figures that alert rules can name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from outrider.wire.generation import DraftSource
from outrider.wire.state import WorkerState, WorkerStatus
from services.scheduler.baselines import Baselines, Standing
from services.scheduler.windows import Window

NUM_BUCKETS = 31
"""Buckets of one second: 30 full ones, and the one that is being filled."""
ENOUGH = 20
"""Drafted tokens that say something of acceptance."""

DESCRIPTIONS: Mapping[str, str] = {
    "throughput": "committed tokens per second",
    "acceptance_rate": "accepted / drafted tokens, of all draft sources",
    "draft_acceptance_rate": "the same of draft models over the last minute: of the draft model and workload "
    "for which it is lowest",
    "acceptance_against_baseline": "acceptance of the last five minutes / that of the time before, of the "
    "draft model and workload for which it is lowest; 1 is as ever",
    "validation_latency": "mean wait for a verdict, ms",
    "draft_latency": "mean wait for a proposal of a draft model, ms",
    "gpu_utilization": "share of time in which workers on GPUs computed, mean",
    "main_model_utilization": "share of time in which validators computed, mean",
    "memory_footprint": "memory of all workers, MB (10^6 bytes); on a GPU all that is used of it",
    "memory_share": "memory / what there is of it, of the worker for which it is highest",
}
"""All figures, over the last 30 s unless they say otherwise."""
ALIASES: Mapping[str, str] = {
    "speculative_acceptance_rate": "acceptance_rate",
    "draft_model_latency": "draft_latency",
}
"""Other names for some of them."""
NAMES = frozenset((*DESCRIPTIONS, *ALIASES))


class Figures:
    """Told of events as they happen, at the cost of an addition each. Event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        now = clock()
        self.baselines = Baselines()
        self._committed, self._judged, self._verified, self._proposed = (
            Window(1.0, NUM_BUCKETS, now) for _ in range(4)
        )
        self._of_workers: dict[str, float] = {}

    def committed(self, num_tokens: int) -> None:
        """A verdict has committed so many tokens."""
        self._committed.add(self._clock(), num_tokens)

    def judged(
        self, source: DraftSource, workload: str, model_version: str, drafted: int, accepted: int
    ) -> None:
        """A round with a draft was decided; `model_version` is that of a model's proposal."""
        now = self._clock()
        self._judged.add(now, accepted, drafted)
        if source is DraftSource.MODEL and model_version:
            self.baselines.judged(now, model_version, workload, drafted, accepted)

    def verified(self, seconds: float) -> None:
        """A verdict came after so long; a prefill that verifies no draft is none."""
        self._verified.add(self._clock(), seconds, 1)

    def proposed(self, seconds: float) -> None:
        """A draft model was waited for so long."""
        self._proposed.add(self._clock(), seconds, 1)

    def loads(self, *, validators: Iterable[WorkerState], drafts: Iterable[WorkerState]) -> None:
        """What the workers last said of themselves; those that can not be reached say nothing."""
        targets = [each for each in validators if _reached(each)]
        workers = [*targets, *(each for each in drafts if _reached(each))]
        with_gpu = [each for each in workers if each.info and each.info.device.startswith("cuda")]
        told = [each.load for each in workers if each.load.memory_bytes]
        shares = [load.memory_bytes / load.memory_limit_bytes for load in told if load.memory_limit_bytes]
        self._of_workers = {
            **_known("main_model_utilization", _mean_utilization(targets)),
            **_known("gpu_utilization", _mean_utilization(with_gpu)),
            **_known("memory_footprint", sum(load.memory_bytes for load in told) / 1e6 if told else None),
            **_known("memory_share", max(shares, default=None)),
        }

    def standings(self) -> list[Standing]:
        """Each draft model on each workload."""
        return list(self.baselines.standings(self._clock()))

    def snapshot(self) -> Mapping[str, float]:
        """The figures of now, by all their names; one that is not known is absent."""
        now = self._clock()
        judged = self._judged.sums(now)
        standings = list(self.baselines.standings(now))
        latest = [each.latest for each in standings if each.latest is not None]
        against = [each.against_baseline for each in standings if each.against_baseline is not None]
        figures = {
            "throughput": self._committed.sums(now).part / self._committed.covered_s(now),
            **_known("acceptance_rate", judged.ratio if judged.whole >= ENOUGH else None),
            **_known("draft_acceptance_rate", min(latest, default=None)),
            **_known("acceptance_against_baseline", min(against, default=None)),
            **_known("validation_latency", _mean_ms(self._verified, now)),
            **_known("draft_latency", _mean_ms(self._proposed, now)),
            **self._of_workers,
        }
        return figures | {alias: figures[name] for alias, name in ALIASES.items() if name in figures}


def _reached(worker: WorkerState) -> bool:
    return worker.status in (WorkerStatus.READY, WorkerStatus.DRAINING)


def _known(name: str, value: float | None) -> dict[str, float]:
    return {} if value is None else {name: value}


def _mean_ms(seconds: Window, now: float) -> float | None:
    mean_s = seconds.sums(now).ratio
    return None if mean_s is None else 1000 * mean_s


def _mean_utilization(workers: Iterable[WorkerState]) -> float | None:
    told = [each.load.utilization for each in workers if each.load.utilization is not None]
    return sum(told) / len(told) if told else None
