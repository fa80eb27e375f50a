"""Depth by trial: each is an arm, its reward the tokens per second of the rounds that drew it."""

from __future__ import annotations

import math

from services.scheduler.control.choice import Choice, Outcome, View
from services.scheduler.control.fixed import LOOKUP_FIRST

ARMS = (0, 2, 4, 6, 8, 12, 16)
DISCOUNT = 0.98
"""Of what was seen before, with each round: rewards drift."""
WIDTH = 0.3
"""How much an arm that was seldom drawn is given for that, as a share of the best rate."""


class BanditPolicy:
    """Discounted upper confidence bounds (Garivier, Moulines, arXiv 0805.3415) over the depths of a session.

    The reward of an arm is the ratio of discounted sums, tokens over seconds, since rounds differ in length.

    Args:
        min_confidence: at which the model ends its proposal.
    """

    def __init__(self, min_confidence: float) -> None:
        self._min_confidence = min_confidence
        # Per arm: discounted rounds, tokens, seconds.
        self._drawn = dict.fromkeys(ARMS, 0.0)
        self._tokens = dict.fromkeys(ARMS, 0.0)
        self._seconds = dict.fromkeys(ARMS, 0.0)
        self._arm = 0

    def choose(self, view: View) -> Choice:
        """As in `Policy`."""
        arms = [arm for arm in ARMS if arm == 0 or view.bounds.min_k <= arm <= view.bounds.max_k]
        if arms == [0] and view.bounds.max_k:
            arms.append(view.bounds.max_k)
        self._arm = self._best([arm for arm in arms if arm in self._drawn])
        best = max(view.offers, key=lambda offer: offer.match_length, default=None)
        if not self._arm:
            return Choice()
        if best and (best.match_length >= LOOKUP_FIRST or not view.draft):
            return Choice(best.source, min(self._arm, best.num_tokens))
        if view.draft:
            return Choice(num_model=self._arm, min_confidence=self._min_confidence)
        return Choice()

    def observe(self, outcome: Outcome) -> None:
        """As in `Policy`."""
        for counts in (self._drawn, self._tokens, self._seconds):
            for arm in counts:
                counts[arm] *= DISCOUNT
        self._drawn[self._arm] += 1
        self._tokens[self._arm] += outcome.committed
        self._seconds[self._arm] += outcome.seconds

    def _best(self, arms: list[int]) -> int:
        untried = [arm for arm in arms if self._drawn[arm] < 0.5 and not self._seconds[arm]]
        if untried:
            return untried[len(untried) // 2]
        rates = {arm: self._tokens[arm] / self._seconds[arm] for arm in arms}
        unit = WIDTH * max(rates.values())
        total = math.log(max(math.e, sum(self._drawn.values())))
        return max(arms, key=lambda arm: rates[arm] + unit * math.sqrt(total / max(self._drawn[arm], 1e-3)))
