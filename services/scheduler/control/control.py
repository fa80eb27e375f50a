"""One control for all sessions of a scheduler, and the part of it that each session holds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from services.scheduler.control.adaptive import AdaptivePolicy
from services.scheduler.control.bandit import BanditPolicy
from services.scheduler.control.choice import Bounds, Choice, Offer, Outcome, Policy, View
from services.scheduler.control.estimates import DecayedMean
from services.scheduler.control.fixed import FixedPolicy
from services.scheduler.control.shared import Shared

if TYPE_CHECKING:
    from outrider.wire.generation import Speculation
    from outrider.wire.validator import Verdict
    from services.scheduler.admission import Plan
    from services.scheduler.settings import SchedulerSettings

TRIAL_SESSIONS = 3
"""Sessions of a workload that each draft model gets before they are compared."""
EXPLORE = 1 / 20
"""Share of sessions that try another draft model than the best one."""


class Control:
    """Estimates by target, and how well each draft model serves each workload.

    Args:
        settings: policy and limits.
        cap: what alerts leave of k at the moment; None: all.
    """

    def __init__(self, settings: SchedulerSettings, cap: Callable[[], int | None] = lambda: None) -> None:
        self._settings = settings
        self.cap = cap
        self._shared: dict[str, Shared] = {}
        # (target, workload, draft model) -> tokens per second of its sessions, and how many there were.
        self._served: dict[tuple[str, str, str], tuple[DecayedMean, int]] = {}
        # Index k: rounds that were asked for so many tokens.
        self.rounds_by_k = [0] * (settings.max_k + 1)
        self._draw = random.Random(20)  # noqa: S311  # no secret

    def shared(self, target: str) -> Shared:
        """Estimates of one target, by the name of its model."""
        if target not in self._shared:
            self._shared[target] = Shared(shares_cores=self._settings.draft_opens == "after")
        return self._shared[target]

    @property
    def targets(self) -> tuple[str, ...]:
        """Those that there are estimates of."""
        return tuple(self._shared)

    def session(self, target: str, workload: str, plan: Plan, speculation: Speculation) -> SessionControl:
        """For a new session."""
        shared = self.shared(target)
        # Labels come from requests: nothing may be kept for each of them without a bound.
        workload = shared.label(workload)
        return SessionControl(
            self, shared, self._policy(plan, shared, workload), target, workload, plan, speculation
        )

    def chosen(self, k: int) -> None:
        """A round was asked for so many tokens."""
        self.rounds_by_k[min(k, len(self.rounds_by_k) - 1)] += 1

    def pick_draft(self, target: str, workload: str, models: Sequence[str]) -> str | None:
        """The draft model for a session that opens: each is tried on some, then the one that served best."""
        if len(models) < 2:
            return models[0] if models else None
        tried = [self._served.get((target, workload, model), (DecayedMean(1.0), 0)) for model in models]
        fewest = min(range(len(models)), key=lambda index: tried[index][1])
        if tried[fewest][1] < TRIAL_SESSIONS:
            return models[fewest]
        if self._draw.random() < EXPLORE:
            return self._draw.choice(models)
        return models[max(range(len(models)), key=lambda index: tried[index][0].value())]

    def served(self, target: str, workload: str, model: str, tokens_per_s: float) -> None:
        """A session that had this draft model has ended."""
        mean, num_sessions = self._served.get((target, workload, model), (DecayedMean(0.9), 0))
        mean.add(tokens_per_s)
        self._served[target, workload, model] = (mean, num_sessions + 1)

    def _policy(self, plan: Plan, shared: Shared, workload: str) -> Policy:
        if not plan.adapts:
            return FixedPolicy(plan.k, plan.min_confidence)
        if self._settings.policy == "bandit":
            return BanditPolicy(plan.min_confidence)
        return AdaptivePolicy(shared, workload)


class SessionControl:
    """Chooses for one session, and passes on what it sees."""

    def __init__(
        self,
        control: Control,
        shared: Shared,
        policy: Policy,
        target: str,
        workload: str,
        plan: Plan,
        speculation: Speculation,
    ) -> None:
        self._control = control
        self._shared = shared
        self._policy = policy
        self._target = target
        self._workload = workload
        self._plan = plan
        self._wishes = speculation
        self._begun_s = time.monotonic()
        self._first_token_s: float | None = None
        self._num_tokens = 0
        # Rounds that asked the draft model: its name, tokens and seconds.
        self._model = ""
        self._model_tokens = 0
        self._model_s = 0.0

    def pick_draft(self, models: Sequence[str]) -> str | None:
        """The draft model for this session."""
        return self._control.pick_draft(self._target, self._workload, models)

    def choose(
        self, most: int, *, length: int, offers: Sequence[Offer], draft: str, num_behind: int, left: int
    ) -> tuple[View, Choice]:
        """For a round that may have `most` drafted tokens, of a session with `left` tokens to its limit."""
        cap = self._control.cap()
        max_k = most if cap is None else min(most, cap)
        view = View(
            bounds=Bounds(min(self._plan.min_k, max_k), max_k),
            length=length,
            offers=tuple(offers),
            draft=draft,
            num_behind=num_behind,
            wished_s=self._wished_s(left),
            reached_s=self._reached_s(),
        )
        choice = self._policy.choose(view)
        self._control.chosen(choice.k)
        return view, choice

    def proposed(self, model: str, seconds: float, *, depth: int, num_behind: int) -> None:
        """A draft model's answer took so long."""
        self._shared.draft(model).add(seconds, depth=depth, num_behind=num_behind)

    def verified(self, verdict: Verdict, length: int) -> None:
        """The target has answered a round of a session of this length."""
        timings = verdict.timings
        if timings.num_forwards == 1 and not verdict.prefill_only:
            self._shared.verify.add(
                timings.compute_us / 1e6, rows=timings.rows, batch_size=timings.batch_size, context=length
            )

    def applied(self, outcome: Outcome, wait_s: float) -> None:
        """A round was applied; it had waited so long for its draft."""
        now_s = time.monotonic()
        self._first_token_s = self._first_token_s or now_s
        self._num_tokens += outcome.committed
        self._shared.applied(outcome.committed, wait_s, outcome.seconds)
        self._policy.observe(outcome)
        if outcome.model_answered:
            self._model = outcome.view.draft
            self._model_tokens += outcome.committed
            self._model_s += outcome.seconds

    def close(self) -> None:
        """The session has ended."""
        if self._model_s:
            self._control.served(
                self._target, self._workload, self._model, self._model_tokens / self._model_s
            )

    def _wished_s(self, left: int) -> float | None:
        """Seconds per token from here on, by the nearer of both wishes."""
        wished = []
        if self._wishes.tpot_target_ms is not None:
            wished.append(self._wishes.tpot_target_ms / 1000)
        if self._wishes.finish_target_ms is not None and left > 0:
            remaining_s = self._begun_s + self._wishes.finish_target_ms / 1000 - time.monotonic()
            wished.append(max(0.0, remaining_s) / left)
        return min(wished, default=None)

    def _reached_s(self) -> float | None:
        if self._first_token_s is None or self._num_tokens < 2:
            return None
        return (time.monotonic() - self._first_token_s) / (self._num_tokens - 1)
