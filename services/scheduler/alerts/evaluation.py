"""Whether a rule fires: a pure function of what was seen so far and the figure of now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.scheduler.alerts.rules import Rule


@dataclass(frozen=True, slots=True)
class Watched:
    """One rule as it stands.

    Attributes:
        firing: whether the alert is on.
        value: the figure when it was last looked at; None: not known then.
        seen_at: when that was, if it was known.
        held_s: how long the figure has asked for a change, out of bounds or inside again; None: it does not.
    """

    firing: bool = False
    value: float | None = None
    seen_at: float | None = None
    held_s: float | None = None


def watch(rule: Rule, before: Watched, value: float | None, now: float) -> Watched:
    """Look at a figure once more.

    It fires when the figure has been out of bounds for the rule's window, and is over when it has been inside
    by the margin as long; what lies between changes nothing, so it never flaps there. While a figure is not
    known, time stands still: it neither fires nor ends, and the unknown stretch counts for neither.
    """
    if value is None:
        return replace(before, value=None, seen_at=None)
    wants_change = rule.inside(value) if before.firing else rule.outside(value)
    if not wants_change:
        return Watched(before.firing, value, now)
    held_s = 0.0
    if before.held_s is not None:
        held_s = before.held_s + (0.0 if before.seen_at is None else max(0.0, now - before.seen_at))
    if held_s < rule.window_s:
        return Watched(before.firing, value, now, held_s)
    return Watched(not before.firing, value, now)
