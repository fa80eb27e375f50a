"""What a scheduler tells of itself: workers, control, alerts, store (scheduler.proto)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.v1 import scheduler_pb2 as pb
from outrider.wire import worker
from outrider.wire.generation import DraftSource, source_from_pb, source_to_pb


class WorkerStatus(enum.Enum):
    """Whether a worker can be used; the values are the wire's."""

    READY = 1
    UNREACHABLE = 2
    REFUSED = 3
    DRAINING = 4


_STATUSES = {
    WorkerStatus.READY: pb.WORKER_STATUS_READY,
    WorkerStatus.UNREACHABLE: pb.WORKER_STATUS_UNREACHABLE,
    WorkerStatus.REFUSED: pb.WORKER_STATUS_REFUSED,
    WorkerStatus.DRAINING: pb.WORKER_STATUS_DRAINING,
}


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What the scheduler knows about one worker; `info` is None before the first Welcome."""

    address: str
    status: WorkerStatus
    reason: str = ""
    info: worker.ModelInfo | None = None
    load: worker.WorkerLoad = worker.WorkerLoad()


@dataclass(frozen=True, slots=True)
class SourceState:
    """Drafted and accepted tokens of one source; index i counts rounds that reached depth i + 1."""

    source: DraftSource
    drafted: int = 0
    accepted: int = 0
    drafted_by_position: tuple[int, ...] = ()
    accepted_by_position: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlState:
    """What the control does and has seen since the start of the process."""

    policy: str = ""
    committed: int = 0
    tokens_per_s: float = 0.0
    # Index k: rounds that were asked for so many drafted tokens.
    rounds_by_k: tuple[int, ...] = ()
    sources: tuple[SourceState, ...] = ()
    # What the alerts leave of k; None: all.
    depth_cap: int | None = None
    # By the names that alert rules use; a figure that is not known is absent.
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlertState:
    """One rule as it stands."""

    name: str
    metric: str
    level: str
    firing: bool = False
    value: float | None = None
    low: float | None = None
    high: float | None = None
    action: str = "none"
    since_unix_ms: int = 0


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """Something that a rule did; `kind` is fired, resolved, acted or refused."""

    unix_ms: int
    name: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class StoreState:
    """The shared store as this scheduler meets it."""

    kind: str = ""
    healthy: bool = True
    reason: str = ""
    num_hits: int = 0
    num_misses: int = 0
    num_failed_reads: int = 0
    num_dropped_writes: int = 0


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """All workers, the number of sessions, and what governs them."""

    validators: tuple[WorkerState, ...] = ()
    drafts: tuple[WorkerState, ...] = ()
    num_sessions: int = 0
    num_waiting: int = 0
    control: ControlState = field(default_factory=ControlState)
    alerts: tuple[AlertState, ...] = ()
    # Newest last.
    alert_history: tuple[AlertEvent, ...] = ()
    store: StoreState = StoreState()


def state_to_pb(state: SchedulerState) -> pb.SchedulerState:
    return pb.SchedulerState(
        validators=[_worker_to_pb(each) for each in state.validators],
        drafts=[_worker_to_pb(each) for each in state.drafts],
        num_sessions=state.num_sessions,
        num_waiting=state.num_waiting,
        control=_control_to_pb(state.control),
        alerts=[_alert_to_pb(each) for each in state.alerts],
        alert_history=[
            pb.AlertEvent(unix_ms=each.unix_ms, name=each.name, kind=each.kind, message=each.message)
            for each in state.alert_history
        ],
        store=_store_to_pb(state.store),
    )


def state_from_pb(message: pb.SchedulerState) -> SchedulerState:
    return SchedulerState(
        validators=tuple(_worker_from_pb(each) for each in message.validators),
        drafts=tuple(_worker_from_pb(each) for each in message.drafts),
        num_sessions=message.num_sessions,
        num_waiting=message.num_waiting,
        control=_control_from_pb(message.control),
        alerts=tuple(_alert_from_pb(each) for each in message.alerts),
        alert_history=tuple(
            AlertEvent(each.unix_ms, each.name, each.kind, each.message) for each in message.alert_history
        ),
        store=_store_from_pb(message.store),
    )


def _worker_to_pb(state: WorkerState) -> pb.WorkerState:
    return pb.WorkerState(
        address=state.address,
        status=_STATUSES[state.status],
        reason=state.reason,
        info=worker.info_to_pb(state.info) if state.info else None,
        load=worker.load_to_pb(state.load),
    )


def _worker_from_pb(message: pb.WorkerState) -> WorkerState:
    try:
        status = WorkerStatus(message.status)
    except ValueError:  # a status of a later revision: not known to be usable
        status = WorkerStatus.REFUSED
    return WorkerState(
        address=message.address,
        status=status,
        reason=message.reason,
        info=worker.info_from_pb(message.info) if message.HasField("info") else None,
        load=worker.load_from_pb(message.load),
    )


def _control_to_pb(state: ControlState) -> pb.ControlState:
    return pb.ControlState(
        policy=state.policy,
        committed=state.committed,
        tokens_per_s=state.tokens_per_s,
        rounds_by_k=state.rounds_by_k,
        sources=[
            pb.SourceState(
                source=source_to_pb(each.source),
                drafted=each.drafted,
                accepted=each.accepted,
                drafted_by_position=each.drafted_by_position,
                accepted_by_position=each.accepted_by_position,
            )
            for each in state.sources
        ],
        depth_cap=state.depth_cap,
        figures=dict(state.figures),
    )


def _control_from_pb(message: pb.ControlState) -> ControlState:
    return ControlState(
        policy=message.policy,
        committed=message.committed,
        tokens_per_s=message.tokens_per_s,
        rounds_by_k=tuple(message.rounds_by_k),
        sources=tuple(
            SourceState(
                source,
                each.drafted,
                each.accepted,
                tuple(each.drafted_by_position),
                tuple(each.accepted_by_position),
            )
            for each in message.sources
            if (source := source_from_pb(each.source)) is not None
        ),
        depth_cap=message.depth_cap if message.HasField("depth_cap") else None,
        figures=dict(message.figures),
    )


def _alert_to_pb(state: AlertState) -> pb.AlertState:
    return pb.AlertState(
        name=state.name,
        metric=state.metric,
        level=state.level,
        firing=state.firing,
        value=state.value,
        low=state.low,
        high=state.high,
        action=state.action,
        since_unix_ms=state.since_unix_ms,
    )


def _alert_from_pb(message: pb.AlertState) -> AlertState:
    bounds = {name: getattr(message, name) for name in ("value", "low", "high") if message.HasField(name)}
    return AlertState(
        name=message.name,
        metric=message.metric,
        level=message.level,
        firing=message.firing,
        action=message.action,
        since_unix_ms=message.since_unix_ms,
        **bounds,
    )


def _store_to_pb(state: StoreState) -> pb.StoreState:
    return pb.StoreState(
        kind=state.kind,
        healthy=state.healthy,
        reason=state.reason,
        num_hits=state.num_hits,
        num_misses=state.num_misses,
        num_failed_reads=state.num_failed_reads,
        num_dropped_writes=state.num_dropped_writes,
    )


def _store_from_pb(message: pb.StoreState) -> StoreState:
    return StoreState(
        kind=message.kind,
        healthy=message.healthy,
        reason=message.reason,
        num_hits=message.num_hits,
        num_misses=message.num_misses,
        num_failed_reads=message.num_failed_reads,
        num_dropped_writes=message.num_dropped_writes,
    )
