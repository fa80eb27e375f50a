"""Estimates find what made the samples, and forget what has changed."""

import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.wire.generation import DraftSource
from services.scheduler.control.acceptance import Acceptance, guess
from services.scheduler.control.cost import DraftCost, VerifyCost
from services.scheduler.control.memory import summary_of, take_over
from services.scheduler.control.shared import Shared


def test_a_proposals_cost_is_found():
    cost, draw = DraftCost(), random.Random(1)
    for _ in range(200):
        depth, behind = draw.randint(1, 12), draw.randint(1, 8)
        cost.add(0.02 + 0.011 * depth + 0.001 * behind + draw.gauss(0, 0.002), depth=depth, num_behind=behind)
    assert cost.token_s == pytest.approx(0.011, rel=0.1)
    assert cost.seconds(10, 4) == pytest.approx(0.134, rel=0.1)


def test_a_draft_that_slowed_down_is_noticed():
    cost, draw = DraftCost(), random.Random(2)
    for token_s in (0.01, 0.04):
        for _ in range(150):
            depth = draw.randint(1, 8)
            cost.add(token_s * depth, depth=depth, num_behind=1)
    assert cost.token_s == pytest.approx(0.04, rel=0.15)


def test_a_stair_of_the_step_is_found():
    """Up to 6 rows cost the same, 7 cost half as much again."""
    cost, draw = VerifyCost(), random.Random(3)
    for _ in range(300):
        rows = draw.randint(1, 12)
        cost.add(0.1 if rows <= 6 else 0.15, rows=rows, batch_size=1, context=100)
    for rows in (2, 4, 6):
        assert cost.seconds(rows, 100) == pytest.approx(0.1, rel=0.1)
    for rows in (7, 9, 12):
        assert cost.seconds(rows, 100) == pytest.approx(0.15, rel=0.1)


def test_steps_that_read_prompts_say_nothing():
    cost = VerifyCost()
    cost.add(5.0, rows=600, batch_size=3, context=600)
    assert not cost.known
    assert cost.num_neighbours == 0


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 10), st.integers(1, 16)), max_size=40))
def test_no_samples_make_a_cost_negative(samples):
    cost = VerifyCost()
    for rows, seconds, batch in samples:
        cost.add(seconds, rows=rows, batch_size=batch, context=10)
    assert all(cost.seconds(rows, 10) > 0 for rows in (1, 5, 33, 64))


@given(
    st.lists(st.tuples(st.integers(1, 16), st.integers(0, 16), st.integers(0, 16)), max_size=30),
    st.floats(0.1, 0.95),
)
def test_reach_never_rises_with_depth(rounds, prior):
    acceptance = Acceptance(0.97)
    for room, offered, accepted in rounds:
        acceptance.add(room, min(room, offered), accepted)
    reach = acceptance.reach(guess(prior, 0.9), 8.0)
    for chances in (reach.offered, reach.accepted):
        assert all(0 <= after <= before <= 1 for before, after in itertools.pairwise(chances))
    assert all(right <= there for right, there in zip(reach.accepted, reach.offered, strict=True))


def test_acceptance_is_found_and_followed():
    acceptance, draw = Acceptance(0.97), random.Random(4)
    for chance in (0.9, 0.5):
        for _ in range(300):
            accepted = next((depth for depth in range(8) if draw.random() > chance), 8)
            acceptance.add(8, 8, accepted)
    reach = acceptance.reach(guess(0.75), 8.0)
    assert reach.accepted[0] == pytest.approx(0.5, abs=0.12)
    assert reach.gain(8) == pytest.approx(1.0, abs=0.3)


def test_a_depth_that_was_never_asked_for_is_taken_to_go_on():
    acceptance = Acceptance(0.97)
    for _ in range(200):
        acceptance.add(4, 4, 4)
    reach = acceptance.reach(guess(0.5), 8.0)
    assert reach.accepted[3] > 0.75
    assert reach.accepted[6] > reach.accepted[3] * 0.5**2


def test_what_was_learnt_is_taken_over_by_another_scheduler():
    ours, theirs = Shared(shares_cores=True), Shared(shares_cores=True)
    model, ngram = (DraftSource.MODEL, "draft"), (DraftSource.NGRAM, 3)
    for _ in range(30):
        ours.note("code", model, 6, 4, 2)
        ours.note("", ngram, 5, 5, 5)
    assert take_over(theirs, summary_of(ours)) == 3  # the model's for its workload, and for all
    for workload, key in (("code", model), ("", ngram)):
        ours_reach, theirs_reach = ours.prior(workload, key), theirs.prior(workload, key)
        assert theirs_reach.accepted == pytest.approx(ours_reach.accepted, abs=1e-3)


def test_what_is_known_already_stays():
    ours, theirs = Shared(shares_cores=True), Shared(shares_cores=True)
    key = (DraftSource.MODEL, "draft")
    ours.note("code", key, 6, 6, 6)
    for _ in range(50):
        theirs.note("code", key, 6, 6, 0)
    before = theirs.prior("code", key)
    take_over(theirs, summary_of(ours))
    assert theirs.prior("code", key) == before


rows = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.integers(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(
    rows
    | st.tuples(st.text(max_size=3), st.sampled_from(["MODEL", "NGRAM", "X"]), rows, rows).map(lambda e: [e])
)
def test_whatever_else_the_store_holds_is_passed_over(document):
    shared = Shared(shares_cores=True)
    take_over(shared, json.dumps(document).encode())
    reach = shared.prior("code", (DraftSource.MODEL, "draft"))
    assert all(0 <= chance <= 1 for chance in reach.accepted)


@given(st.binary())
def test_bytes_that_are_no_json_are_passed_over(document):
    assert take_over(Shared(shares_cores=True), document) == 0
