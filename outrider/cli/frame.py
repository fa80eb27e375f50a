"""One frame of `outrider top`: what a scheduler says of itself, as lines that any terminal can wrap."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from outrider.cli.bars import bar, columns, shortened
from outrider.wire.state import (
    AlertState,
    ControlState,
    SchedulerState,
    SourceState,
    StoreState,
    WorkerState,
    WorkerStatus,
)

BAR = 12
"""Cells of a bar."""
NUM_EVENTS = 5
STATUS_STYLES = {
    WorkerStatus.READY: "green",
    WorkerStatus.DRAINING: "yellow",
    WorkerStatus.UNREACHABLE: "red",
    WorkerStatus.REFUSED: "red",
}
LEVEL_STYLES = {"CRITICAL": "bold red", "WARNING": "yellow"}
EVENT_STYLES = {"fired": "red", "resolved": "green", "acted": "cyan", "refused": "yellow"}
SEPARATOR = " · "


class _Period(NamedTuple):
    """What happened between two states, or since the start of the scheduler."""

    name: str
    committed: int
    rounds_by_k: tuple[int, ...]
    sources: tuple[SourceState, ...]
    elapsed_s: float | None


def frame(
    before: SchedulerState | None, now: SchedulerState, elapsed_s: float, *, address: str = ""
) -> RenderableType:
    """What a scheduler does, as seen in two states of it.

    Args:
        before: an earlier state; None: there is none. Without a round in between the figures are those since
            the scheduler's start, and so they are when it has started again meanwhile.
        now: the latest.
        elapsed_s: seconds from one to the other; above 0 with `before`.
        address: of the scheduler, for its heading.
    """
    period = _period(before, now, elapsed_s)
    return Group(
        _heading(now, address),
        Text(),
        *_control(now.control, period),
        Text(),
        *_workers(now),
        Text(),
        *_alerts(now),
        _store(now.store),
    )


def _period(before: SchedulerState | None, now: SchedulerState, elapsed_s: float) -> _Period:
    control = now.control
    if before is not None:
        rounds = _less(control.rounds_by_k, before.control.rounds_by_k)
        earlier = {each.source: each for each in before.control.sources}
        sources = tuple(_since(earlier.get(each.source), each) for each in control.sources)
        committed = control.committed - before.control.committed
        # Counters that went back are those of a scheduler that has started again.
        if sum(rounds) > 0 and min(rounds) >= 0 and committed >= 0:
            return _Period(f"last {elapsed_s:.0f} s", committed, rounds, sources, elapsed_s)
    return _Period("since the start", control.committed, control.rounds_by_k, control.sources, None)


def _since(before: SourceState | None, now: SourceState) -> SourceState:
    if before is None:
        return now
    return SourceState(
        now.source,
        now.drafted - before.drafted,
        now.accepted - before.accepted,
        _less(now.drafted_by_position, before.drafted_by_position),
        _less(now.accepted_by_position, before.accepted_by_position),
    )


def _less(now: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...]:
    """Elementwise; a row that got longer began with zeros."""
    padded = (*before, *[0] * (len(now) - len(before)))
    return tuple(new - old for new, old in zip(now, padded, strict=False))


def _heading(state: SchedulerState, address: str) -> Text:
    text = Text.assemble((f"scheduler {said(address)}".rstrip(), "bold"))
    if state.control.policy:
        text.append(f"{SEPARATOR}{said(state.control.policy)}")
    text.append(f"{SEPARATOR}{_count(state.num_sessions, 'session')} running{SEPARATOR}")
    text.append(f"{state.num_waiting} waiting", "yellow" if state.num_waiting else "")
    return text


def _control(control: ControlState, period: _Period) -> Iterator[Text]:
    yield _title("rounds", period.name)
    speed = [f"{control.tokens_per_s:.1f} tokens/s"]
    if period.elapsed_s:
        speed.append(f"{period.committed / period.elapsed_s:.1f} now")
    num_rounds = sum(period.rounds_by_k)
    if num_rounds:
        speed.append(f"tau {period.committed / num_rounds:.2f}")
    for label, name, form in (
        ("verdict", "validation_latency", "{:.0f} ms"),
        ("proposal", "draft_latency", "{:.0f} ms"),
        ("target busy", "main_model_utilization", "{:.0%}"),
    ):
        if name in control.figures:
            speed.append(f"{label} {form.format(control.figures[name])}")
    yield Text(f"  speed   {SEPARATOR.join(speed)}")
    yield _chosen(control, period)
    if not any(each.drafted for each in period.sources):
        yield Text("  drafts  none", "dim")
    for each in period.sources:
        if each.drafted:
            yield _source(each)


def _chosen(control: ControlState, period: _Period) -> Text:
    """The histogram of k, with no room spent on what was not chosen."""
    text = Text("  k       ")
    num_rounds = sum(period.rounds_by_k)
    if num_rounds:
        shares = [count / num_rounds for count in period.rounds_by_k]
        most = max(shares)
        shown = [
            f"{k} {columns([share / most])} {share:.0%}" for k, share in enumerate(shares) if share >= 0.005
        ]
        mean = sum(k * share for k, share in enumerate(shares))
        text.append(f"{'  '.join(shown)}{SEPARATOR}mean {mean:.1f} of {_count(num_rounds, 'round')}")
    else:
        text.append("no round yet", "dim")
    if control.depth_cap is not None:
        text.append(f"{SEPARATOR}at most {control.depth_cap} (alerts)", "yellow")
    return text


def _source(counted: SourceState) -> Text:
    share = counted.accepted / counted.drafted
    text = Text(f"  {counted.source.name.lower():<16}{bar(share, BAR)} {share:>4.0%}")
    text.append(f" {shortened(counted.accepted)} of {shortened(counted.drafted)}")
    by_depth = [
        accepted / drafted
        for drafted, accepted in zip(counted.drafted_by_position, counted.accepted_by_position, strict=False)
        if drafted > 0
    ]
    if by_depth:
        text.append(f"{SEPARATOR}by depth {columns(by_depth)} {by_depth[0]:.0%} to {by_depth[-1]:.0%}")
    return text


def _workers(state: SchedulerState) -> Iterator[Text]:
    yield _title("workers")
    if not state.validators and not state.drafts:
        yield Text("  none", "dim")
    for role, workers in (("validator", state.validators), ("draft", state.drafts)):
        for each in workers:
            yield from _worker(role, each)


def _worker(role: str, worker: WorkerState) -> Iterator[Text]:
    text = Text(f"  {role:<10}{said(worker.address)} ")
    text.append(worker.status.name.lower(), STATUS_STYLES[worker.status])
    if worker.info is not None:
        text.append(SEPARATOR + said(f"{worker.info.model} {worker.info.dtype} on {worker.info.device}"))
    yield text
    if worker.reason:
        yield Text(f"    {said(worker.reason)}", STATUS_STYLES[worker.status])
    if worker.status in (WorkerStatus.READY, WorkerStatus.DRAINING):
        yield Text(f"    {SEPARATOR.join(_load(worker))}")


def _load(worker: WorkerState) -> Iterator[str]:
    load = worker.load
    yield _count(load.num_sessions, "session")
    if load.num_waiting:
        yield f"{load.num_waiting} waiting"
    if load.num_pages:
        used = load.num_pages - load.num_free_pages
        yield f"KV {bar(used / load.num_pages, BAR)} {used} of {_count(load.num_pages, 'page')}"
    if load.memory_bytes:
        memory = f"memory {shortened(load.memory_bytes)}B"
        if load.memory_limit_bytes:
            share = load.memory_bytes / load.memory_limit_bytes
            memory += f" of {shortened(load.memory_limit_bytes)}B ({share:.0%})"
        yield memory
    if load.utilization is not None:
        yield f"busy {load.utilization:.0%}"


def _alerts(state: SchedulerState) -> Iterator[Text]:
    firing = [each for each in state.alerts if each.firing]
    yield _title("alerts", f"{len(firing)} of {_count(len(state.alerts), 'rule')} firing")
    for each in firing:
        yield _firing(each)
    for event in reversed(state.alert_history[-NUM_EVENTS:]):
        text = Text(f"  {_clock(event.unix_ms)} {said(event.name)} ")
        text.append(said(event.kind), EVENT_STYLES.get(event.kind, ""))
        if event.message:
            text.append(f": {said(event.message)}")
        yield text


def _firing(alert: AlertState) -> Text:
    text = Text("  ")
    text.append(f"{said(alert.level)} {said(alert.name)}", LEVEL_STYLES.get(alert.level, "bold"))
    value = "unknown" if alert.value is None else f"{alert.value:.4g}"
    bounds = [f"below {alert.low:.4g}"] if alert.low is not None else []
    bounds += [f"above {alert.high:.4g}"] if alert.high is not None else []
    text.append(f": {said(alert.metric)} is {value}, fires {' or '.join(bounds)}")
    text.append(f"{SEPARATOR}since {_clock(alert.since_unix_ms)}")
    if alert.action != "none":
        text.append(f"{SEPARATOR}{said(alert.action)}")
    return text


def _store(store: StoreState) -> Text:
    text = Text.assemble(("store ", "bold"), said(store.kind) or "unknown")
    text.append(" well" if store.healthy else " failing", "green" if store.healthy else "red")
    if store.reason:
        text.append(f" ({said(store.reason)})", "" if store.healthy else "red")
    asked = store.num_hits + store.num_misses
    if asked:
        text.append(f"{SEPARATOR}{shortened(store.num_hits)} of {shortened(asked)} look-ups found something")
    for number, what in (
        (store.num_failed_reads, "reads failed"),
        (store.num_dropped_writes, "writes dropped"),
    ):
        if number:
            text.append(f"{SEPARATOR}{shortened(number)} {what}", "yellow")
    return text


def _title(name: str, aside: str = "") -> Text:
    return Text.assemble((name, "bold"), (f" {aside}" if aside else "", "dim"))


def _count(number: int, noun: str) -> str:
    return f"{shortened(number)} {noun}{'' if number == 1 else 's'}"


def _clock(unix_ms: int) -> str:
    """The time of day, here."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).astimezone().strftime("%H:%M:%S")


def said(text: str) -> str:
    """What another process says, without what a terminal would obey."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
