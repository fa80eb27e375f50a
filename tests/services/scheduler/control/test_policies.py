"""Policies in a small world whose costs and chances are known."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.wire.generation import DraftSource, Speculation
from services.scheduler.admission import plan_of
from services.scheduler.control.adaptive import AdaptivePolicy
from services.scheduler.control.bandit import BanditPolicy
from services.scheduler.control.choice import Bounds, Choice, Judged, Offer, Outcome, Policy, View
from services.scheduler.control.control import Control
from services.scheduler.control.fixed import FixedPolicy
from services.scheduler.control.shared import MAX_WORKLOADS, Shared
from services.scheduler.settings import SchedulerSettings

NGRAM = DraftSource.NGRAM
ANY = Bounds(1, 16)


@dataclass
class World:
    """Rounds of one session beside `neighbours` others that are like it."""

    # Chance that a token of the model's is right, and of the lookup's where it offers.
    model: float
    lookup: float = 0.0
    # How often there is an offer, and of how many tokens.
    offered: float = 0.0
    offer_tokens: int = 12
    step_s: float = 0.1
    row_s: float = 0.002
    token_s: float = 0.011
    ask_s: float = 0.003
    neighbours: int = 0
    seed: int = 1
    shared: Shared = field(default_factory=lambda: Shared(shares_cores=True))

    def run(self, policy: Policy, rounds: int = 400, bounds: Bounds = ANY, **wishes: float) -> float:
        """Tokens per second of the last three quarters."""
        draw = random.Random(self.seed)
        tokens = seconds = 0.0
        self.choices: list[Choice] = []
        for number in range(rounds):
            offers: tuple[Offer, ...] = ()
            if draw.random() < self.offered:
                offers = (Offer(NGRAM, 6, self.offer_tokens),)
            view = View(bounds, 200 + number, offers, "draft", num_behind=1, **wishes)
            choice = policy.choose(view)
            self.choices.append(choice)
            assert choice.k <= bounds.max_k
            outcome, wait_s = self._round(view, choice, draw)
            policy.observe(outcome)
            self.shared.applied(outcome.committed, wait_s, outcome.seconds)
            if number >= rounds // 4:
                tokens, seconds = tokens + outcome.committed, seconds + outcome.seconds
        return tokens / seconds

    def _step_s(self, rows: float) -> float:
        return self.step_s + self.row_s * rows

    def _round(self, view: View, choice: Choice, draw: random.Random) -> tuple[Outcome, float]:
        most = max((offer.num_tokens for offer in view.offers), default=0)
        runs_on = next((n for n in range(most) if draw.random() > self.lookup), most)
        good = min(runs_on, choice.num_lookup)
        drafted, confidence = 0, 1.0
        while drafted < choice.num_model and confidence >= choice.min_confidence:
            drafted, confidence = drafted + 1, confidence * self.model
        right = next((n for n in range(drafted) if draw.random() > self.model), drafted)
        if good < choice.num_lookup:
            right = 0
        wait_s = 0.0
        if choice.num_model:
            wait_s = self.ask_s + self.token_s * drafted
            self.shared.draft("draft").add(wait_s, depth=drafted, num_behind=1)
        rows = 1 + choice.num_lookup + drafted
        sessions = 1 + self.neighbours
        step_s = self._step_s(rows * sessions)
        self.shared.verify.add(step_s, rows=rows * sessions, batch_size=sessions, context=view.length)
        committed = 1 + good + right
        judged = min(most, runs_on + 1, committed)
        outcome = Outcome(
            view,
            choice,
            tuple(Judged(judged, min(runs_on, judged)) for _ in view.offers),
            choice.num_lookup,
            good,
            drafted,
            right,
            committed=1 + good + right,
            seconds=wait_s + step_s,
            model_answered=bool(choice.num_model),
        )
        return outcome, wait_s


def best_fixed(**world: Any) -> float:
    return max(World(**world).run(FixedPolicy(k, 0.0)) for k in (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16))


def adaptive(**values: Any) -> tuple[float, World]:
    world = World(**values)
    return world.run(AdaptivePolicy(world.shared, "")), world


@pytest.mark.parametrize("model", [0.3, 0.5, 0.65, 0.8, 0.9, 0.97])
@pytest.mark.parametrize("token_s", [0.003, 0.011, 0.05])
def test_it_keeps_up_with_the_best_depth_of_hindsight(model, token_s):
    rate, _ = adaptive(model=model, token_s=token_s)
    assert rate >= 0.95 * best_fixed(model=model, token_s=token_s)


def test_c67_a_draft_below_its_break_even_is_left_alone():
    rate, world = adaptive(model=0.2, token_s=0.08)
    assert rate >= 0.97 * best_fixed(model=0.2, token_s=0.08)
    asked = sum(choice.num_model > 0 for choice in world.choices[-200:])
    assert asked <= 200 // 8


def test_a_draft_that_became_better_is_found_again():
    world = World(model=0.1, token_s=0.06)
    policy = AdaptivePolicy(world.shared, "")
    world.run(policy)
    world.model = 0.95
    world.token_s = 0.011
    world.run(policy)
    assert sum(choice.num_model > 0 for choice in world.choices[-100:]) > 90


def test_c66_depth_falls_to_zero_as_load_rises():
    """Each row costs as much as the next one: what is refused is paid for by the others."""
    depths = []
    for neighbours in (0, 3, 15, 40):
        values = {"model": 0.6, "row_s": 0.01, "step_s": 0.05, "neighbours": neighbours}
        rate, world = adaptive(**values)
        assert rate >= 0.85 * best_fixed(**values)
        depths.append(sum(choice.k for choice in world.choices[-100:]) / 100)
    assert min(depths[:2]) > 1 > depths[2] >= depths[3]
    assert depths[-1] < 0.5


def test_a_slow_way_to_the_draft_makes_proposals_deeper():
    """20 ms more for each question: what is asked for must be worth the way, and confidence may be less."""
    near, far = (
        [c for c in adaptive(model=0.9, ask_s=ask_s)[1].choices[-100:] if c.num_model]
        for ask_s in (0.001, 0.1)
    )
    assert sum(c.min_confidence for c in far) / len(far) < sum(c.min_confidence for c in near) / len(near)


def test_lookups_go_first_where_they_are_good_and_not_where_they_are_bad():
    _, good = adaptive(model=0.7, lookup=0.97, offered=1.0)
    assert sum(choice.num_lookup > 0 for choice in good.choices[-100:]) > 90
    _, bad = adaptive(model=0.8, lookup=0.1, offered=1.0)
    assert sum(choice.num_lookup > 0 for choice in bad.choices[-100:]) < 10


def test_the_model_goes_on_behind_a_short_lookup():
    _, world = adaptive(model=0.95, lookup=0.97, offered=1.0, offer_tokens=3)
    joined = [choice for choice in world.choices[-100:] if choice.num_lookup and choice.num_model]
    assert len(joined) > 60


def test_bounds_hold():
    world = World(model=0.95)
    world.run(AdaptivePolicy(world.shared, ""), bounds=Bounds(3, 5))
    assert {choice.k for choice in world.choices} <= {0, 3, 4, 5}
    world.run(AdaptivePolicy(world.shared, ""), bounds=Bounds(1, 0))
    assert {choice.k for choice in world.choices} == {0}


def test_who_is_on_time_leaves_speculation_to_those_who_are_not():
    values = {"model": 0.75, "row_s": 0.004, "step_s": 0.05, "neighbours": 6}
    depths = {}
    for name, reached_s in (("on time", 0.05), ("late", 0.5)):
        world = World(**values)
        world.run(AdaptivePolicy(world.shared, ""), wished_s=0.2, reached_s=reached_s)
        depths[name] = sum(choice.k for choice in world.choices[-100:])
    assert depths["late"] > depths["on time"]


def test_a_bandit_finds_a_good_arm():
    world = World(model=0.9)
    rate = world.run(BanditPolicy(0.0), rounds=1500)
    assert rate >= 0.85 * best_fixed(model=0.9)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(1, 16), st.integers(0, 16))
def test_no_world_breaks_a_policy(model, lookup, offered, least, most):
    for make in (lambda world: AdaptivePolicy(world.shared, ""), lambda _: BanditPolicy(0.5)):
        world = World(model=model, lookup=lookup, offered=offered)
        world.run(make(world), rounds=40, bounds=Bounds(min(least, most), most))


def test_labels_of_requests_are_kept_up_to_a_bound():
    settings = SchedulerSettings()
    control = Control(settings)
    for number in range(4 * MAX_WORKLOADS):
        speculation = Speculation()
        session = control.session("target", f"label {number}", plan_of(speculation, settings), speculation)
        view, choice = session.choose(8, length=9, offers=[], draft="draft", num_behind=1, left=50)
        session.applied(Outcome(view, choice, (), 0, 0, 4, 2, 3, 0.2, model_answered=True), 0.05)
        session.close()
        control.shared("target").note(f"label {number}", (DraftSource.MODEL, "draft"), 4, 4, 2)
    assert len(control._served) <= MAX_WORKLOADS + 1
