"""Whether a draft model is loaded again because its acceptance has fallen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from outrider.rpc.errors import OutriderError

if TYPE_CHECKING:
    from services.scheduler.alerts.port import AlertPort
    from services.scheduler.alerts.rules import Rule
    from services.scheduler.baselines import Standing
    from services.scheduler.figures import Figures

Tell = Callable[["Rule", str, str], None]
"""Rule, kind of event, and what happened."""


class Refusal(NamedTuple):
    """Why nothing is loaded again: one word to tell two refusals apart, and a sentence."""

    reason: str
    message: str


class Reloads:
    """One reload at a time, and no rule's sooner than its cool-down after the last one of any rule.

    Low acceptance alone is no reason: prose is drafted badly for good. It must have fallen against what the
    same draft had on the same workload, for as long as the rule's window; and where a reload has not brought
    it back, another one is not tried until it has come back by itself.
    """

    def __init__(self, figures: Figures, port: AlertPort, tell: Tell, clock: Callable[[], float]) -> None:
        self._figures = figures
        self._port = port
        self._tell = tell
        self._clock = clock
        self._began_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        # Versions and workloads for which a reload has not helped, or not yet.
        self._unhelped: set[tuple[str, str]] = set()
        # What each rule has given as a reason, so that it is told once in one alert.
        self._told: dict[str, set[str]] = {}

    @property
    def running(self) -> asyncio.Task[None] | None:
        """The reload under way."""
        return self._task if self._task is not None and not self._task.done() else None

    def observe(self) -> None:
        """Note which drafts have recovered."""
        for standing in self._figures.standings():
            if standing.recovered:
                self._unhelped.discard((standing.model_version, standing.workload))

    def consider(self, rule: Rule) -> None:
        """The rule fires: load again what has fallen, or tell why not."""
        if self.running:
            return
        now = self._clock()
        reasons, refusal = self._choose(rule)
        if refusal is None and self._began_at is not None and now - self._began_at < rule.cooldown_s:
            refusal = Refusal(
                "cooldown",
                f"the last one began {now - self._began_at:.0f} s ago, and {rule.cooldown_s:g} s must pass",
            )
        if refusal is not None:
            self._refuse(rule, refusal)
            return
        # A draft that was just loaded has not been low for long.
        self._told[rule.name] = {"none"}
        self._began_at = now
        self._task = asyncio.get_running_loop().create_task(self._reload(rule, reasons))

    def over(self, rule: Rule) -> None:
        """The alert has ended: the next one tells its refusals anew."""
        self._told.pop(rule.name, None)

    def _choose(self, rule: Rule) -> tuple[list[Standing], Refusal | None]:
        """Drafts to load again, or why none."""
        bound = rule.low or 0.0
        low = [each for each in self._figures.standings() if each.stays_below(bound, rule.window_s)]
        if not low:
            return [], Refusal("none", f"no draft model was below {bound:g} for so long on any workload")
        fallen = [each for each in low if each.fallen]
        if not fallen:
            return [], Refusal("usual", "; ".join(_compared(each) for each in low))
        fresh = [each for each in fallen if (each.model_version, each.workload) not in self._unhelped]
        if not fresh:
            return [], Refusal("unhelped", "the last reload has not helped")
        return fresh, None

    def _refuse(self, rule: Rule, refusal: Refusal) -> None:
        told = self._told.setdefault(rule.name, set())
        if refusal.reason not in told:
            told.add(refusal.reason)
            self._tell(rule, "refused", f"no reload: {refusal.message}")

    async def _reload(self, rule: Rule, reasons: list[Standing]) -> None:
        """One draft after the other, so that the rest goes on drafting."""
        for before in sorted({each.model_version for each in reasons}):
            own = [each for each in reasons if each.model_version == before]
            try:
                after = await self._port.reload_draft(before)
            except OutriderError as error:
                self._tell(
                    rule, "refused", f"the draft of version {before} was not loaded again: {error.message}"
                )
                continue
            self._figures.baselines.reloaded(self._clock(), before, after)
            self._unhelped.update((after, each.workload) for each in own)
            why = "; ".join(_compared(each) for each in own)
            self._tell(rule, "acted", f"loaded the draft of version {before} again, now {after}: {why}")


def _compared(standing: Standing) -> str:
    where = f"on {standing.workload}" if standing.workload else "on requests of no workload"
    now = "unknown" if standing.watched is None else f"{standing.watched:.2f}"
    usual = "not known yet" if standing.baseline is None else f"{standing.baseline:.2f}"
    return f"acceptance {where} is {now}, its baseline {usual}"
