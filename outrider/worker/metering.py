"""What a worker counts: forwards and the rounds they serve, sessions, KV pages, the use of its device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from outrider.telemetry import Metrics, Reading
from outrider.telemetry import metric_names as names
from outrider.telemetry.metric_names import Phase

if TYPE_CHECKING:
    from outrider.runtime.cost import ModelCost
    from outrider.runtime.peak import Peak
    from outrider.runtime.sequence import Segment
    from outrider.wire.worker import ModelInfo, Timings
    from outrider.worker.engine import Engine
    from outrider.worker.session import Session

WINDOW = 256
"""Forwards that the gauges of utilisation look back on."""
PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """Sessions of one moment."""

    num_open: int = 0
    # Their stream has ended.
    num_leased: int = 0
    # Of all, those that no forward has served yet.
    num_unserved: int = 0

    @classmethod
    def of(cls, sessions: Iterable[Session]) -> SessionCounts:
        """Count those that are not finished."""
        num_open = num_leased = num_unserved = 0
        for session in sessions:
            num_leased += session.connection is None
            num_open += session.connection is not None
            waits = session.answered is None and bool(session.rounds)
            num_unserved += waits and session.rounds[0].started_ns is None
        return cls(num_open, num_leased, num_unserved)


class Work(NamedTuple):
    """What one forward did."""

    flops: int
    read_bytes: int
    took_s: float


class WorkerMeter:
    """Told by the engine's thread; a scrape reads what it has added up."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._recent: deque[Work] = deque(maxlen=WINDOW)
        # Model -> flops and bytes so far.
        self._done: dict[str, list[int]] = {}
        # Set when the device was measured.
        self.peak: Peak | None = None
        metrics.read(self._readings)

    def serve(self, info: ModelInfo, cost: ModelCost | None) -> None:
        """From now on it is this model that works; `cost` None: unknown."""
        metrics, model = self._metrics, info.model
        self._cost = cost
        self._work = self._done.setdefault(model, [0, 0])
        self._forward_s = metrics.histogram(names.FORWARD_DURATION, model)
        self._rows = metrics.histogram(names.FORWARD_ROWS, model)
        self._batch_size = metrics.histogram(names.FORWARD_BATCH_SIZE, model)
        self._queue_s = metrics.histogram(names.ROUND_DURATION, model, Phase.QUEUE)
        self._compute_s = metrics.histogram(names.ROUND_DURATION, model, Phase.COMPUTE)

    def forward(self, segments: Sequence[Segment], *, rows: int, batch_size: int, took_s: float) -> None:
        """A forward over `segments` has run."""
        self._forward_s.observe(took_s)
        self._rows.observe(rows)
        self._batch_size.observe(batch_size)
        if self._cost is None:
            return
        num_head_rows = sum(len(segment.wanted) for segment in segments)
        num_kv_tokens = sum(segment.sequence.num_rows for segment in segments)
        work = Work(
            self._cost.flops(rows, num_head_rows),
            self._cost.read_bytes(num_head_rows, num_kv_tokens),
            took_s,
        )
        self._work[0] += work.flops
        self._work[1] += work.read_bytes
        self._recent.append(work)

    def answered(self, timings: Timings) -> None:
        """A round was answered."""
        self._queue_s.observe(timings.queue_us / 1e6)
        self._compute_s.observe(timings.compute_us / 1e6)

    def _readings(self) -> Iterator[Reading]:
        for model, (flops, read_bytes) in list(self._done.items()):
            yield Reading(names.FORWARD_FLOPS, flops, (model,))
            yield Reading(names.FORWARD_READ_BYTES, read_bytes, (model,))
        if self.peak is None:
            return
        yield Reading(names.PEAK_FLOPS, self.peak.flops_per_s)
        yield Reading(names.PEAK_BANDWIDTH, self.peak.read_bytes_per_s)
        recent = tuple(self._recent)
        busy_s = sum(work.took_s for work in recent)
        if busy_s:
            flops_per_s = sum(work.flops for work in recent) / busy_s
            bytes_per_s = sum(work.read_bytes for work in recent) / busy_s
            arithmetic = flops_per_s / self.peak.flops_per_s
            bandwidth = bytes_per_s / self.peak.read_bytes_per_s
            yield Reading(names.MODEL_UTILIZATION, arithmetic, ("arithmetic",))
            yield Reading(names.MODEL_UTILIZATION, bandwidth, ("bandwidth",))


def read_engine(engine: Engine) -> Iterator[Reading]:
    """What a scrape gets of an engine: each is a value that its thread replaces whole."""
    info, memory, sessions = engine.info, engine.memory, engine.sessions
    num_sessions = sessions.num_open + sessions.num_leased
    yield Reading(names.NUM_REQUESTS_RUNNING, num_sessions - sessions.num_unserved)
    yield Reading(names.NUM_REQUESTS_WAITING, sessions.num_unserved)
    yield Reading(names.SESSIONS, sessions.num_open, ("open",))
    yield Reading(names.SESSIONS, sessions.num_leased, ("leased",))
    yield Reading(names.PREEMPTIONS, memory.num_preemptions)
    yield Reading(names.KV_CACHE_USAGE, memory.usage_ratio)
    yield Reading(names.KV_CACHE_PAGES, memory.num_pages)
    yield Reading(names.KV_CACHE_USED_PAGES, memory.num_used_pages)
    yield Reading(names.KV_CACHE_KEPT_PAGES, memory.num_kept_pages)
    yield Reading(names.CACHE_QUERIES, memory.prefix.num_queried_tokens, (PREFIX,))
    yield Reading(names.CACHE_HITS, memory.prefix.num_hit_tokens, (PREFIX,))
    yield Reading(names.CACHE_EVICTIONS, memory.prefix.num_evicted_pages, (PREFIX,))
    facts = (info.model, info.dtype, info.device, info.exactness.name.lower(), info.numerics_id)
    fingerprints = (info.weight_fingerprint, info.tokenizer_fingerprint, info.model_version)
    yield Reading(names.MODEL_INFO, 1, (*facts, *fingerprints))
