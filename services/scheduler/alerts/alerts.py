"""The rules of one scheduler, looked at every second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from outrider.telemetry import NO_TRACING, In, Metrics
from outrider.wire.state import AlertEvent, AlertState
from services.scheduler.alerts.depth import DepthCap
from services.scheduler.alerts.evaluation import Watched, watch
from services.scheduler.alerts.reloads import Reloads
from services.scheduler.alerts.rules import Action, Rule
from services.scheduler.alerts.telling import ACTED, Telling

if TYPE_CHECKING:
    from outrider.telemetry import Tracing
    from services.scheduler.alerts.port import AlertPort
    from services.scheduler.figures import Figures

EVERY_S = 1.0


class Alerts:
    """Watches figures, tells what happens to them, and acts. Event loop only.

    Args:
        rules: what is watched.
        figures: where the figures come from; its workers are told here.
        port: the workers.
        max_depth: the largest k there is, from which a cap comes down.
        tracing: for one span per event.
        metrics: of the process.
        notify: called after each event, so that whoever shows the state shows it anew.
        clock: of all durations; the one of `figures`.
        wall: seconds since 1970, for what people read.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        figures: Figures,
        port: AlertPort,
        *,
        max_depth: int,
        tracing: Tracing = NO_TRACING,
        metrics: Metrics | None = None,
        notify: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._rules = tuple(rules)
        self._figures = figures
        self._port = port
        self._clock = clock
        self._wall = wall
        metrics = metrics or Metrics(In.SCHEDULER)
        self._telling = Telling(self._rules, tracing=tracing, metrics=metrics, wall=wall, notify=notify)
        self._reloads = Reloads(figures, port, self._telling.tell, clock)
        self._watched = {rule.name: Watched() for rule in self._rules}
        self._since_ms = dict.fromkeys(self._watched, self._now_ms())
        self._caps = {
            rule.name: DepthCap(rule, max_depth) for rule in self._rules if rule.action is Action.LOWER_DEPTH
        }

    @property
    def depth_cap(self) -> int | None:
        """The most drafted tokens per candidate that the alerts leave; None: as many as anybody likes."""
        return min((each.cap for each in self._caps.values() if each.cap is not None), default=None)

    @property
    def states(self) -> tuple[AlertState, ...]:
        """All rules as they stand."""
        return tuple(
            AlertState(
                name=rule.name,
                metric=rule.metric,
                level=rule.level.value,
                firing=self._watched[rule.name].firing,
                value=self._watched[rule.name].value,
                low=rule.low,
                high=rule.high,
                action=rule.action.value,
                since_unix_ms=self._since_ms[rule.name],
            )
            for rule in self._rules
        )

    @property
    def history(self) -> tuple[AlertEvent, ...]:
        """The last events, newest last."""
        return tuple(self._telling.history)

    async def run(self) -> None:
        """Look every second, until cancelled; a reload under way is then left to its worker."""
        try:
            while True:
                self.tick()
                await asyncio.sleep(EVERY_S)
        finally:
            if (task := self._reloads.running) is not None:
                task.cancel()

    def tick(self) -> None:
        """Look at every figure once."""
        now = self._clock()
        self._figures.loads(validators=self._port.validator_states, drafts=self._port.draft_states)
        self._reloads.observe()
        figures = self._figures.snapshot()
        for rule in self._rules:
            before = self._watched[rule.name]
            after = self._watched[rule.name] = watch(rule, before, figures.get(rule.metric), now)
            if after.firing != before.firing and after.value is not None:
                self._changed(rule, after.value, firing=after.firing)
            self._act(rule, after, now)

    async def settled(self) -> None:
        """Wait for the action under way."""
        if (task := self._reloads.running) is not None:
            await asyncio.wait([task])

    def _changed(self, rule: Rule, value: float, *, firing: bool) -> None:
        self._since_ms[rule.name] = self._now_ms()
        if firing:
            self._telling.fired(rule, value)
            return
        self._telling.resolved(rule, value)
        self._reloads.over(rule)

    def _act(self, rule: Rule, watched: Watched, now: float) -> None:
        match rule.action:
            case Action.RELOAD_DRAFT if watched.firing and watched.value is not None:
                self._reloads.consider(rule)
            case Action.LOWER_DEPTH:
                cap = self._caps[rule.name]
                if cap.step(watched, now):
                    ends = (
                        "candidates are as deep as before" if cap.cap is None else f"k is at most {cap.cap}"
                    )
                    self._telling.tell(rule, ACTED, ends, watched.value)
            case _:
                pass

    def _now_ms(self) -> int:
        return round(1000 * self._wall())
