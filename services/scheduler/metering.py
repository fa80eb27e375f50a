"""What one session takes, and what it adds to the scheduler's metrics."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from outrider.telemetry import In, Metrics
from outrider.telemetry.metric_names import REQUEST_QUEUE_TIME, ROUND_DURATION, Phase
from outrider.wire.generation import Costs
from outrider.wire.worker import Transfer
from services.scheduler.figures import Figures
from services.scheduler.tallies import ModelTally, Tallies

if TYPE_CHECKING:
    from prometheus_client import Histogram

    from outrider.wire.draft import Proposal
    from outrider.wire.generation import Counters
    from outrider.wire.state import SourceState
    from outrider.wire.validator import Verdict
    from services.scheduler.rounds import RoundRecord

LAG = 8
"""Rounds that are held back before they are counted: a stop string may still cut them off."""


class Meter:
    """The scheduler's metrics of sessions. Event loop only; scrapes read what it adds up."""

    def __init__(self, metrics: Metrics, figures: Figures | None = None) -> None:
        self._metrics = metrics
        self.figures = figures or Figures()
        self._tallies = Tallies()
        metrics.read(self._tallies.readings)

    @property
    def num_committed(self) -> int:
        """Tokens that all rounds committed."""
        return self._tallies.num_committed

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """What each draft source came to."""
        return self._tallies.sources

    def session(self, model: str, *, workload: str = "", waited_s: float = 0.0) -> SessionMeter:
        """Of one new session that waited so long for its validator."""
        return SessionMeter(self._metrics, self._tallies.of(model), model, waited_s, self.figures, workload)


class Carried:
    """What carrying a session's events to and from workers of one role took so far."""

    def __init__(self) -> None:
        self.total = Transfer()

    def add(self, transfer: Transfer) -> None:
        """Note those of one round."""
        self.total += transfer


class SessionMeter:
    """Times and bytes of one session, and its rounds once they are certain to stay."""

    def __init__(
        self,
        metrics: Metrics,
        tally: ModelTally,
        model: str,
        waited_s: float,
        figures: Figures,
        workload: str,
    ) -> None:
        self.drafts, self.target = Carried(), Carried()
        self._tally = tally
        self._figures = figures
        self._workload = workload
        # Of the draft model that proposed last.
        self._draft_version = ""
        self._took: dict[Phase, Histogram] = {
            phase: metrics.histogram(ROUND_DURATION, model, phase) for phase in _OWN_PHASES
        }
        self._queue_time: Histogram | None = metrics.histogram(REQUEST_QUEUE_TIME, model)
        self._waited_s = waited_s
        self._held: deque[RoundRecord] = deque()
        self._num_counted = 0
        self._kept: int | None = None
        self._spent_s: dict[Phase, float] = dict.fromkeys(_OWN_PHASES, 0.0)
        self._queue_s = 0.0

    @property
    def costs(self) -> Costs:
        """What the session took so far."""
        spent, drafts, target = self._spent_s, self.drafts.total, self.target.total
        return Costs(
            queue_us=_us(self._queue_s),
            prefill_us=_us(spent[Phase.PREFILL]),
            draft_us=_us(spent[Phase.DRAFT] + spent[Phase.LOOKUP]),
            verify_us=_us(spent[Phase.VERIFY]),
            draft_queue_us=_us(spent[Phase.DRAFT_QUEUE]),
            draft_compute_us=_us(spent[Phase.DRAFT_COMPUTE]),
            validator_queue_us=_us(spent[Phase.VERIFY_QUEUE]),
            validator_compute_us=_us(spent[Phase.VERIFY_COMPUTE]),
            draft_sent_bytes=drafts.sent_bytes,
            draft_received_bytes=drafts.received_bytes,
            validator_sent_bytes=target.sent_bytes,
            validator_received_bytes=target.received_bytes,
            encode_us=(drafts.encode_ns + target.encode_ns) // 1000,
            decode_us=(drafts.decode_ns + target.decode_ns) // 1000,
            hops=drafts.hops + target.hops,
        )

    def waited(self, started_s: float) -> None:
        """A draft model was waited for since `started_s` of the monotonic clock, in vain or not."""
        took_s = time.monotonic() - started_s
        self._figures.proposed(took_s)
        self._add(Phase.DRAFT, took_s)

    def looked_up(self, started_s: float) -> None:
        """Lookups were asked since `started_s` of the monotonic clock, in vain or not."""
        self._add(Phase.LOOKUP, time.monotonic() - started_s)

    def proposed(self, proposal: Proposal, *, timed: bool) -> None:
        """A draft model has answered, in time or late; `timed` unless it had other work before that."""
        self.drafts.add(proposal.transfer)
        self._draft_version = proposal.model_version
        if timed:
            self._add(Phase.DRAFT_QUEUE, proposal.timings.queue_us / 1e6)
            self._add(Phase.DRAFT_COMPUTE, proposal.timings.compute_us / 1e6)

    def verified(self, verdict: Verdict, started_s: float) -> None:
        """The target has answered a round that it was asked since `started_s`."""
        self.target.add(verdict.transfer)
        queue_s = verdict.timings.queue_us / 1e6
        if self._queue_time is not None:
            self._queue_s = self._waited_s + queue_s
            self._queue_time.observe(self._queue_s)
            self._queue_time = None
        took_s = time.monotonic() - started_s
        if verdict.prefill_only:
            self._add(Phase.PREFILL, took_s)
            return
        self._figures.verified(took_s)
        self._add(Phase.VERIFY, took_s)
        self._add(Phase.VERIFY_QUEUE, queue_s)
        self._add(Phase.VERIFY_COMPUTE, verdict.timings.compute_us / 1e6)

    def applied(self, record: RoundRecord, started_s: float) -> None:
        """A round that began at `started_s` has committed its tokens."""
        if not record.prefill_only:
            self._add(Phase.ROUND, time.monotonic() - started_s)
        self._figures.committed(record.committed)
        for part in record.parts_inside(record.committed):
            self._figures.judged(
                part.source, self._workload, self._draft_version, part.drafted, part.accepted
            )
            if part.accepted < part.drafted:
                break  # what came behind was never judged
        self._held.append(record)
        if len(self._held) > LAG:
            self._count(self._held.popleft(), None)

    def cut(self, kept: int) -> None:
        """Only the first `kept` tokens that these rounds committed stay."""
        self._kept = kept

    def close(self, counters: Counters) -> None:
        """The session has ended with these counters."""
        while self._held:
            self._count(self._held.popleft(), self._kept)
        self._tally.discarded_rounds += counters.discarded_rounds
        self._tally.missed_proposals += counters.missed_proposals
        self._tally.reopens += counters.reopens

    def _count(self, record: RoundRecord, kept: int | None) -> None:
        left = record.committed if kept is None else max(0, kept - self._num_counted)
        inside = min(record.committed, left)
        self._num_counted += inside
        if inside and not record.prefill_only:
            self._tally.add(record, inside)

    def _add(self, phase: Phase, seconds: float) -> None:
        self._spent_s[phase] += seconds
        self._took[phase].observe(seconds)


_OWN_PHASES: tuple[Phase, ...] = tuple(phase for phase in Phase if phase not in (Phase.QUEUE, Phase.COMPUTE))


def unmetered() -> SessionMeter:
    """For a session that nobody scrapes."""
    return Meter(Metrics(In.SCHEDULER)).session("")


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
