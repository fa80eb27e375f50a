"""Events of alerts as log lines, spans, metrics, and a history."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from outrider.telemetry import Attr, SpanName, get_logger
from outrider.telemetry.metric_names import ALERT_FIRING, ALERTS_FIRED
from outrider.wire.state import AlertEvent
from services.scheduler.alerts.rules import Level, Rule

if TYPE_CHECKING:
    from outrider.telemetry import Metrics, Tracing

log = get_logger(__name__)

HISTORY = 200
"""Events that are remembered."""
FIRED, RESOLVED, ACTED, REFUSED = "fired", "resolved", "acted", "refused"
_SEVERITIES = {Level.INFO: logging.INFO, Level.WARNING: logging.WARNING, Level.CRITICAL: logging.ERROR}


class Telling:
    """Where everything that a rule does is told; `notify` is called for each."""

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        tracing: Tracing,
        metrics: Metrics,
        wall: Callable[[], float],
        notify: Callable[[], None],
    ) -> None:
        self.history: deque[AlertEvent] = deque(maxlen=HISTORY)
        self._tracing = tracing
        self._wall = wall
        self._notify = notify
        self._fired = {rule.name: metrics.counter(ALERTS_FIRED, rule.name, rule.level) for rule in rules}
        self._firing = {rule.name: metrics.gauge(ALERT_FIRING, rule.name, rule.level) for rule in rules}

    def fired(self, rule: Rule, value: float) -> None:
        """The figure was out of bounds for the rule's window."""
        self._fired[rule.name].inc()
        self._firing[rule.name].set(1)
        self.tell(rule, FIRED, f"{_is(rule, value)}, and was out of bounds for {rule.window_s:g} s", value)

    def resolved(self, rule: Rule, value: float) -> None:
        """It is inside them again."""
        self._firing[rule.name].set(0)
        self.tell(rule, RESOLVED, f"{_is(rule, value)}, and is inside of it again", value)

    def tell(self, rule: Rule, kind: str, message: str, value: float | None = None) -> None:
        """Anything that a rule did."""
        now_s = self._wall()
        self.history.append(AlertEvent(round(1000 * now_s), rule.name, kind, message))
        severity = _SEVERITIES[rule.level] if kind in (FIRED, ACTED) else logging.INFO
        facts = {
            "alert": rule.name,
            "alert_level": rule.level.value,
            "metric": rule.metric,
            "detail": message,
        }
        log.log(severity, f"alert_{kind}", **facts)
        attributes: dict[str, str | float] = {
            Attr.ALERT: rule.name,
            Attr.ALERT_KIND: kind,
            Attr.ALERT_LEVEL: rule.level.value,
            Attr.ALERT_METRIC: rule.metric,
            **({} if value is None else {Attr.ALERT_VALUE: value}),
        }
        now_ns = round(1e9 * now_s)
        self._tracing.start_root(SpanName.ALERT, attributes=attributes, start_ns=now_ns).end(now_ns)
        self._notify()


def _is(rule: Rule, value: float) -> str:
    return f"{rule.metric} is {value:.4g}, should be {rule.bounds}"
