"""The proposal that commits the most tokens per second of the whole system, by what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outrider.wire.generation import DraftSource
from services.scheduler.control.acceptance import SESSION_DECAY, Acceptance, Reach
from services.scheduler.control.choice import Choice, Offer, Outcome, View
from services.scheduler.control.shared import Key, Shared, weight_of_prior

HYSTERESIS = 0.03
"""A choice of another kind must gain this share of the session's own speed."""
FIRST_DEPTH = 4
FIRST_CONFIDENCE = 0.5
"""Asked for until costs are known."""
FIRST_PROBE = 8
LAST_PROBE = 64
"""Rounds without the model after which it is tried again; doubles with each try that does not pay."""
PROBE_DEPTH = 4
LEAST_UNHIDDEN = 0.3
"""Sessions that are drafted for together are drafted for a little longer each."""
LEAST_CONFIDENCE = 0.05
MOST_CONFIDENCE = 0.9
ON_TIME_WEIGHT = 0.25
LATE_WEIGHT = 4.0
"""What a session's own speed counts against the others' when its wish is met, and when it is not."""
_DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True, slots=True)
class _Rated:
    """A choice and what it promises."""

    choice: Choice
    value: float
    # Tokens per second of this session alone.
    rate: float


class AdaptivePolicy:
    """Rates every choice of a round by the estimates, and takes the best.

    A round of this session commits 1 + g tokens, g being the drafted tokens that are accepted, and takes
    D + V: the wait for the proposal and the target's step. The step is shared with n other sessions, whose
    rounds commit G tokens each and take as long as it does, so a choice is worth

        (1 + g) / (D + V)  +  n G / (D' + V)

    tokens per second, with the others' usual wait D'. A depth that is free for one session slows the others
    down when the step's time grows with its rows: the depth falls as load rises, to 0 where that is best.
    Where draft and target share their cores, D is time that the others lose too.

    The model ends its proposal by itself, where one more token is not worth its time: a token of chance p is
    worth c seconds where p > r c, r being the tokens per second that the session makes otherwise. Behind
    tokens that the model takes for right with confidence q its chance is f q, f being how much of its
    confidence comes true (`Calibration`). So the threshold of confidence is r c / f.

    Args:
        shared: estimates of all sessions: costs, and acceptance as the prior of this session's own.
        workload: the label under which the session's acceptance is shared.
    """

    def __init__(self, shared: Shared, workload: str) -> None:
        self._shared = shared
        self._workload = workload
        self._own: dict[Key, Acceptance] = {}
        # Of the round under way: they are the same for all its choices.
        self._reaches: dict[Key, Reach] = {}
        self._last = Choice()
        self._rate = 0.0
        self._rounds_without_model = 0
        self._next_probe = FIRST_PROBE
        # The round under way asks the model only to see whether it has become better.
        self._probes = False

    def choose(self, view: View) -> Choice:
        """As in `Policy`."""
        if view.bounds.max_k <= 0:
            return Choice()
        if not self._shared.verify.known or (view.draft and not self._shared.draft(view.draft).known):
            return self._unknowing(view)
        self._reaches.clear()
        rated = [self._rated(view, choice) for choice in self._choices(view)]
        best = max(rated, key=lambda each: each.value)
        kept = max(
            (each for each in rated if _kind(each.choice) == _kind(self._last)),
            key=lambda each: each.value,
            default=best,
        )
        margin = HYSTERESIS * self._weight(view) * kept.rate
        chosen = best if best.value > kept.value + margin else kept
        self._rate = chosen.rate
        self._last = chosen.choice
        self._probes = (
            bool(view.draft)
            and not chosen.choice.num_model
            and self._rounds_without_model >= self._next_probe
            and self._shared.may_probe(self._probe_cost_s(view))
        )
        return self._probe(view) if self._probes else chosen.choice

    def observe(self, outcome: Outcome) -> None:
        """As in `Policy`."""
        choice = outcome.choice
        # What was offered is judged by what was committed, taken or not.
        for offer, judged in zip(outcome.view.offers, outcome.judged, strict=True):
            key = (offer.source, match_class(offer.match_length))
            self._note(key, judged.num_tokens, judged.num_tokens, judged.num_right)
        if not outcome.model_answered:
            self._rounds_without_model += 1
            return
        if outcome.lookup_accepted == outcome.lookup_drafted:  # else the model's part was never judged
            model = (DraftSource.MODEL, outcome.view.draft)
            self._note(model, choice.num_model, outcome.model_drafted, outcome.model_accepted)
            if outcome.confidences:
                calibration = self._shared.calibration(self._workload, outcome.view.draft)
                calibration.add(outcome.confidences, outcome.model_accepted)
        # A model that is used again starts over; one that was tried and is not waits longer.
        self._next_probe = min(LAST_PROBE, 2 * self._next_probe) if self._probes else FIRST_PROBE
        self._rounds_without_model = 0

    def _unknowing(self, view: View) -> Choice:
        """Some rounds of middling depth, until costs are known."""
        k = view.bounds.clamp(FIRST_DEPTH)
        if view.draft:
            return Choice(num_model=k, min_confidence=FIRST_CONFIDENCE)
        best = max(view.offers, key=lambda offer: offer.match_length, default=None)
        return Choice(best.source, min(k, best.num_tokens)) if best else Choice()

    def _probe_cost_s(self, view: View) -> float:
        """Of all who wait for it."""
        wait_s = self._shared.draft(view.draft).seconds(PROBE_DEPTH, view.num_behind)
        return wait_s * (1 + self._shared.verify.num_neighbours * self._unhidden(view))

    def _probe(self, view: View) -> Choice:
        return Choice(num_model=view.bounds.clamp(PROBE_DEPTH), min_confidence=self._confidence(view))

    def _choices(self, view: View) -> Iterator[Choice]:
        yield Choice()
        bounds, confidence = view.bounds, self._confidence(view)
        depths = sorted({bounds.clamp(depth) for depth in _DEPTHS})
        model_depths = depths if view.draft else []
        for k in model_depths:
            yield Choice(num_model=k, min_confidence=confidence)
        for offer in view.offers:
            most = min(offer.num_tokens, bounds.max_k)
            for taken in sorted({*(depth for depth in depths if depth < most), most} - {0}):
                if taken >= bounds.min_k or taken == offer.num_tokens:
                    yield Choice(offer.source, taken)
            # Behind a part of an offer the model would propose what the rest of it says, or be wrong.
            for k in model_depths:
                if most + k <= bounds.max_k:
                    yield Choice(offer.source, most, k, confidence)

    def _rated(self, view: View, choice: Choice) -> _Rated:
        shared = self._shared
        gain = rows = wait_s = 0.0
        reached = 1.0
        if choice.lookup is not None:
            offer = next(each for each in view.offers if each.source is choice.lookup)
            reach = self._reach_of(offer)
            gain += reach.gain(choice.num_lookup)
            rows += choice.num_lookup
            reached = reach.accepted[choice.num_lookup - 1]
        if choice.num_model:
            reach = self._reach((DraftSource.MODEL, view.draft))
            depth = max(1.0, reach.depth(choice.num_model))
            gain += reached * reach.gain(choice.num_model)
            rows += depth
            wait_s = shared.draft(view.draft).seconds(depth, view.num_behind + choice.num_lookup)
        neighbours = shared.verify.num_neighbours
        others_rows = neighbours * shared.verify.rows_of_a_session
        step_s = shared.verify.seconds(others_rows + 1 + rows, view.length)
        rate = (1 + gain) / (wait_s + step_s)
        others_s = shared.usual_wait_s + step_s
        if shared.shares_cores:
            others_s += max(0.0, wait_s - shared.usual_wait_s)
        others = neighbours * shared.usual_gain / others_s if neighbours else 0.0
        return _Rated(choice, self._weight(view) * rate + others, rate)

    def _confidence(self, view: View) -> float:
        """The threshold, in steps of 0.05, so that it does not flutter."""
        shared = self._shared
        neighbours = shared.verify.num_neighbours
        rows = neighbours * shared.verify.rows_of_a_session + 4
        few_s, more_s = (shared.verify.seconds(each, view.length) for each in (rows, rows + 4))
        row_s = max(0.0, more_s - few_s) / 4
        token_s = shared.draft(view.draft).token_s * (1 + neighbours * self._unhidden(view))
        rate = self._rate or shared.usual_gain / (shared.usual_wait_s + few_s)
        factor = shared.calibration(self._workload, view.draft).factor
        wanted = rate * (token_s + row_s * (1 + neighbours)) / max(0.1, factor)
        return round(min(MOST_CONFIDENCE, max(LEAST_CONFIDENCE, wanted)) * 20) / 20

    def _unhidden(self, view: View) -> float:
        """The share of a draft's time that a neighbour loses.

        None where it has other cores, little where it waits for a draft itself.
        """
        shared = self._shared
        if not shared.shares_cores:
            return 0.0
        wait_s = shared.draft(view.draft).seconds(FIRST_DEPTH, view.num_behind)
        return max(LEAST_UNHIDDEN, 1 - shared.usual_wait_s / max(wait_s, 1e-4))

    def _weight(self, view: View) -> float:
        if view.wished_s is None or view.reached_s is None:
            return 1.0
        return LATE_WEIGHT if view.reached_s > view.wished_s else ON_TIME_WEIGHT

    def _reach_of(self, offer: Offer) -> Reach:
        return self._reach((offer.source, match_class(offer.match_length)))

    def _reach(self, key: Key) -> Reach:
        reach = self._reaches.get(key)
        if reach is None:
            reach = self._shared.prior(self._workload, key)
            if key in self._own:
                reach = self._own[key].reach(reach, weight_of_prior(key))
            self._reaches[key] = reach
        return reach

    def _note(self, key: Key, room: int, offered: int, accepted: int) -> None:
        if key not in self._own:
            self._own[key] = Acceptance(SESSION_DECAY)
        self._own[key].add(room, offered, accepted)
        self._shared.note(self._workload, key, room, offered, accepted)


def match_class(match_length: int) -> int:
    """Longer matches are surer; the classes are 2, 3-4, 5-8, 9-16, 17-32, and more."""
    return max(1, (max(1, match_length) - 1).bit_length())


def _kind(choice: Choice) -> tuple[bool, bool]:
    return choice.lookup is not None, choice.num_model > 0
