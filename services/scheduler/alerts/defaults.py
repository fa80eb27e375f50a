"""The rules of a scheduler that is given no file; docs/alerts.yml says the same as one."""

from __future__ import annotations

from services.scheduler.alerts.rules import COOLDOWNS_S, Action, Level, Rule

DEFAULT_RULES: tuple[Rule, ...] = (
    # Information alone: there are workloads for which it is low for good. The action is choosier.
    Rule(
        "draft_acceptance_low",
        "draft_acceptance_rate",
        low=0.6,
        window_s=300,
        level=Level.INFO,
        action=Action.RELOAD_DRAFT,
        cooldown_s=COOLDOWNS_S[Action.RELOAD_DRAFT],
    ),
    Rule("acceptance_below_baseline", "acceptance_against_baseline", low=0.8, window_s=60),
    # Nothing is wrong: a larger k may pay.
    Rule("acceptance_high", "acceptance_rate", high=0.9, window_s=60, level=Level.INFO),
    Rule("draft_slow", "draft_latency", high=50),
    Rule("draft_very_slow", "draft_latency", high=200, level=Level.CRITICAL),
    Rule("main_model_saturated", "main_model_utilization", high=0.95, window_s=60, level=Level.INFO),
    Rule(
        "memory_short",
        "memory_share",
        high=0.9,
        window_s=10,
        action=Action.LOWER_DEPTH,
        cooldown_s=COOLDOWNS_S[Action.LOWER_DEPTH],
    ),
)
