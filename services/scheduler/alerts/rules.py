"""What an alert rule says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

WINDOW_S = 30.0
"""How long a figure is out of bounds before a rule without a window fires."""
MARGIN = 0.05


class Level(StrEnum):
    """How bad it is."""

    INFO = "INFO"
    WARNING = "WARNING"
    CRITICAL = "CRITICAL"


class Action(StrEnum):
    """What is done about it."""

    NONE = "none"
    RELOAD_DRAFT = "reload_draft"
    LOWER_DEPTH = "lower_depth"


COOLDOWNS_S = {Action.NONE: 0.0, Action.RELOAD_DRAFT: 3600.0, Action.LOWER_DEPTH: 10.0}
"""Least time between two runs of an action, unless the rule says otherwise."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A figure and the bounds between which it is well.

    Attributes:
        name: of the alert; no two rules share one.
        metric: the figure, by a name of `services.scheduler.figures.NAMES`.
        low: the rule fires below it; None: no bound on that side.
        high: the rule fires above it.
        window_s: how long the figure must be out of bounds, or well inside them again.
        level: how bad it is.
        action: what is done while the rule fires.
        cooldown_s: least time between two runs of the action.
        margin: share of a bound by which the figure must be inside of it before the alert is over.
    """

    name: str
    metric: str
    low: float | None = None
    high: float | None = None
    window_s: float = WINDOW_S
    level: Level = Level.WARNING
    action: Action = Action.NONE
    cooldown_s: float = 0.0
    margin: float = MARGIN

    def outside(self, value: float) -> bool:
        """Whether the figure is out of bounds."""
        return (self.low is not None and value < self.low) or (self.high is not None and value > self.high)

    def inside(self, value: float) -> bool:
        """Whether it is inside by the margin; between the two it says nothing new."""
        return (self.low is None or value >= self.inner_low) and (
            self.high is None or value <= self.inner_high
        )

    @property
    def inner_low(self) -> float:
        """Where an alert that it was too low is over."""
        return (self.low or 0.0) * (1 + self.margin)

    @property
    def inner_high(self) -> float:
        """Where an alert that it was too high is over."""
        return (self.high or 0.0) * (1 - self.margin)

    @property
    def bounds(self) -> str:
        """In words, such as "0.15 to 0.9"."""
        if self.low is None:
            return f"at most {self.high:g}"
        return f"at least {self.low:g}" if self.high is None else f"{self.low:g} to {self.high:g}"
