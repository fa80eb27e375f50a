"""What all sessions on one target have learnt together."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.wire.generation import DraftSource
from services.scheduler.control.acceptance import SHARED_DECAY, Acceptance, Calibration, Reach, guess
from services.scheduler.control.cost import DraftCost, VerifyCost
from services.scheduler.control.estimates import DecayedMean

Key = tuple[DraftSource, str | int]
"""A source, and the draft model's name or the class of the match."""

MAX_WORKLOADS = 64
"""Labels come from requests: beyond so many, new ones share one."""
MODEL_PRIOR = 16.0
LOOKUP_PRIOR = 4.0
PROBE_SHARE = 0.01
MOST_BUDGET_S = 2.0
_OTHERS = "other"


class Shared:
    """Costs of one target and its drafts; acceptance by workload, the prior of each session's own.

    Args:
        shares_cores: draft and target take turns on the same cores.
    """

    def __init__(self, *, shares_cores: bool) -> None:
        self.verify = VerifyCost()
        self.shares_cores = shares_cores
        self._drafts: dict[str, DraftCost] = {}
        self._acceptance: dict[str, dict[Key, Acceptance]] = {}
        self._calibrations: dict[tuple[str, str], Calibration] = {}
        self._gain = DecayedMean(0.98)
        self._wait_s = DecayedMean(0.98)
        # Seconds that may go into trying what is not thought to pay.
        self._budget_s = 0.0

    def draft(self, model: str) -> DraftCost:
        """Of one draft model."""
        if model not in self._drafts:
            self._drafts[model] = DraftCost()
        return self._drafts[model]

    def calibration(self, workload: str, model: str) -> Calibration:
        """Of one draft model on one workload."""
        key = (self.label(workload), model)
        if key not in self._calibrations:
            self._calibrations[key] = Calibration()
        return self._calibrations[key]

    @property
    def usual_gain(self) -> float:
        """Tokens that a round of any session commits."""
        return self._gain.value(1.0)

    @property
    def usual_wait_s(self) -> float:
        """Seconds that a round of any session waits for its draft."""
        return self._wait_s.value()

    def applied(self, committed: int, wait_s: float, round_s: float) -> None:
        """A round of any session."""
        self._gain.add(committed)
        self._wait_s.add(wait_s)
        self._budget_s = min(MOST_BUDGET_S, self._budget_s + PROBE_SHARE * round_s)

    def may_probe(self, cost_s: float) -> bool:
        """Whether a try that costs so many seconds, of all sessions, is affordable; it is paid at once."""
        if self._budget_s < cost_s:
            return False
        self._budget_s -= cost_s
        return True

    def label(self, workload: str) -> str:
        """Under which a workload's acceptance is kept."""
        full = len(self._acceptance) >= MAX_WORKLOADS
        return _OTHERS if full and workload not in self._acceptance else workload

    def note(self, workload: str, key: Key, room: int, offered: int, accepted: int) -> None:
        """A proposal was judged."""
        for label in {self.label(workload), ""}:
            kept = self._acceptance.setdefault(label, {})
            if key not in kept:
                kept[key] = Acceptance(SHARED_DECAY)
            kept[key].add(room, offered, accepted)

    def prior(self, workload: str, key: Key) -> Reach:
        """What a new session may expect: by its workload, else by all of them, else a guess."""
        reach = _guess(key)
        for label in dict.fromkeys(("", self.label(workload))):
            kept = self._acceptance.get(label, {}).get(key)
            if kept is not None:
                reach = kept.reach(reach, weight_of_prior(key))
        return reach

    def summaries(self) -> Iterator[tuple[str, Key, Acceptance]]:
        """Everything that another scheduler could begin with."""
        for label, kept in self._acceptance.items():
            for key, acceptance in kept.items():
                yield label, key, acceptance

    def begin_with(self, workload: str, key: Key, acceptance: Acceptance) -> None:
        """Take over what another scheduler has learnt, unless there is something of our own."""
        kept = self._acceptance.setdefault(self.label(workload), {})
        kept.setdefault(key, acceptance)


def _guess(key: Key) -> Reach:
    source, detail = key
    match source:
        case DraftSource.MODEL:
            return guess(0.75, 0.9)
        case DraftSource.CANDIDATE_CACHE | DraftSource.PREDICTION:
            return guess(0.9)
        case _:
            return guess(min(0.95, 0.4 + 0.12 * int(detail)))


def weight_of_prior(key: Key) -> float:
    """Rounds that a prior is worth against what a session has seen itself.

    A text either repeats another or it does not, and a few rounds tell; how good a model's guesses are
    differs less between sessions than between rounds.
    """
    return MODEL_PRIOR if key[0] is DraftSource.MODEL else LOOKUP_PRIOR
