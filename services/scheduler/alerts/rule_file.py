"""Alert rules from a YAML file; each error names the rule, the field, and the fix."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from services.scheduler.alerts.rules import COOLDOWNS_S, MARGIN, WINDOW_S, Action, Level, Rule
from services.scheduler.figures import NAMES

E = TypeVar("E", Level, Action)

TOP = "metrics"
FIELDS = (
    *("name", "metric", "threshold", "above", "below", "window_s"),
    *("alert_level", "action", "cooldown_s", "margin"),
)
ACCEPTANCES = frozenset(("acceptance_rate", "speculative_acceptance_rate", "draft_acceptance_rate"))
"""Figures that a draft may be loaded again for."""
MEMORIES = frozenset(("memory_share", "memory_footprint"))
"""Figures that fewer candidates may help."""


class BadRules(ValueError):
    """A rule file can not be used; the text is for whoever wrote it."""


def read_rules(path: str | Path) -> tuple[Rule, ...]:
    """The rules of a file. Raises BadRules."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRules(f"{path} can not be read: {error}") from error
    try:
        return parse_rules(text)
    except BadRules as error:
        raise BadRules(f"{path}: {error}") from error


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules of a file's text: a list under `metrics`, which may be empty. Raises BadRules."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadRules(f"it is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or not isinstance(document.get(TOP), list):
        raise BadRules(f"it has no list of rules; write them under {TOP}:")
    if unknown := [str(key) for key in document if key != TOP]:
        raise BadRules(f"{unknown[0]} is not known at the top; write rules under {TOP}:")
    rules = tuple(_rule(number, entry) for number, entry in enumerate(document[TOP], start=1))
    for number, rule in enumerate(rules, start=1):
        if any(rule.name == earlier.name for earlier in rules[: number - 1]):
            raise BadRules(
                f"rule {number} ({rule.name}): name is taken by a rule above; "
                "give it another, and name the figure in metric"
            )
    return rules


def _rule(number: int, entry: Any) -> Rule:
    if not isinstance(entry, dict):
        raise BadRules(f"rule {number} is {entry!r}; write fields such as name: and threshold:")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise BadRules(f"rule {number}: name is {name!r}; give each rule one")
    try:
        return _checked(name, entry)
    except BadRules as error:
        raise BadRules(f"rule {number} ({name}): {error}") from error


def _checked(name: str, entry: Mapping[Any, Any]) -> Rule:
    """What an entry with a name says."""
    if unknown := [str(key) for key in entry if key not in FIELDS]:
        raise BadRules(f"{unknown[0]} is no field; choose of {', '.join(FIELDS)}")
    metric = entry.get("metric", name)
    if not isinstance(metric, str) or metric not in NAMES:
        raise BadRules(f"metric is {metric!r}; choose one of {', '.join(sorted(NAMES))}")
    low, high = _bounds(entry)
    action = _choice(entry, "action", Action, Action.NONE)
    if action is Action.NONE and "cooldown_s" in entry:
        raise BadRules("cooldown_s is the least time between two actions; name an action too, or remove it")
    rule = Rule(
        name,
        metric,
        low=low,
        high=high,
        window_s=_number(entry, "window_s", WINDOW_S, _at_least_zero),
        level=_choice(entry, "alert_level", Level, Level.WARNING),
        action=action,
        cooldown_s=_number(entry, "cooldown_s", COOLDOWNS_S[action], _at_least_zero),
        margin=_number(entry, "margin", MARGIN, _below_one),
    )
    if low is not None and high is not None and rule.inner_low > rule.inner_high:
        raise BadRules(
            f"margin is {rule.margin:g}, which leaves no room between {low:g} and {high:g}; make it smaller"
        )
    _check_action(rule)
    return rule


def _check_action(rule: Rule) -> None:
    if rule.action is Action.RELOAD_DRAFT and (rule.metric not in ACCEPTANCES or rule.low is None):
        raise BadRules(
            f"action is reload_draft, which needs a lower bound of one of {', '.join(sorted(ACCEPTANCES))}"
        )
    if rule.action is Action.LOWER_DEPTH and (rule.metric not in MEMORIES or rule.high is None):
        raise BadRules(
            f"action is lower_depth, which needs an upper bound of one of {', '.join(sorted(MEMORIES))}"
        )


def _bounds(entry: Mapping[Any, Any]) -> tuple[float | None, float | None]:
    given = [field for field in ("threshold", "above", "below") if field in entry]
    if len(given) != 1:
        what = " and ".join(given) or "no bound"
        raise BadRules(f"it has {what}; give one of threshold: [low, high], above: or below:")
    if given == ["above"]:
        return None, _number(entry, "above", 0.0, _at_least_zero)
    if given == ["below"]:
        return _number(entry, "below", 0.0, _at_least_zero), None
    threshold = entry["threshold"]
    if not isinstance(threshold, list) or len(threshold) != 2:
        raise BadRules(f"threshold is {threshold!r}; give two numbers as [low, high]")
    low, high = (_number({"threshold": bound}, "threshold", 0.0, _at_least_zero) for bound in threshold)
    if low >= high:
        raise BadRules(f"threshold is [{low:g}, {high:g}]; the first must be below the second")
    return low, high


def _number(entry: Mapping[Any, Any], field: str, default: float, check: Callable[[float], str]) -> float:
    value = entry.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadRules(f"{field} is {value!r}; give a number")
    if wish := check(value):
        raise BadRules(f"{field} is {value:g}; give {wish}")
    return float(value)


def _at_least_zero(value: float) -> str:
    return "" if value >= 0 else "0 or more"


def _below_one(value: float) -> str:
    return "" if 0 <= value < 1 else "0 or more, and less than 1"


def _choice(entry: Mapping[Any, Any], field: str, kind: type[E], default: E) -> E:
    value = entry.get(field, default)
    try:
        return kind(value)
    except ValueError as error:
        raise BadRules(f"{field} is {value!r}; choose one of {', '.join(kind)}") from error
