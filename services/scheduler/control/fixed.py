"""The same depth in every round, as a request or an operator sets it."""

from __future__ import annotations

from services.scheduler.control.choice import Choice, Offer, Outcome, View

LOOKUP_FIRST = 5
"""A match of so many tokens goes before the model."""


class FixedPolicy:
    """A lookup with a long match goes first, else the model, else any lookup.

    Args:
        k: tokens at most; 0: plain decoding.
        min_confidence: at which the model ends earlier.
    """

    def __init__(self, k: int, min_confidence: float) -> None:
        self._k = k
        self._min_confidence = min_confidence

    def choose(self, view: View) -> Choice:
        """As in `Policy`."""
        k = min(self._k, view.bounds.max_k)
        best = max(view.offers, key=lambda offer: (offer.match_length, offer.num_tokens), default=None)
        if k and best and (best.match_length >= LOOKUP_FIRST or not view.draft):
            return Choice(best.source, self._taken(best, k))
        if k and view.draft:
            return Choice(num_model=k, min_confidence=self._min_confidence)
        return Choice()

    def observe(self, outcome: Outcome) -> None:
        """Nothing is learnt."""

    def _taken(self, offer: Offer, k: int) -> int:
        # Who has no confidence to tell has this: a run of two seldom goes on for twelve.
        limit = 2 * offer.match_length if self._min_confidence else k
        return min(k, offer.num_tokens, limit)
