"""Who takes the next session."""

import random

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.placement import Load, in_turn, num_sessions

COUNTS = st.integers(0, 50)
LOADS = st.lists(st.builds(Load, st.booleans(), COUNTS, COUNTS), min_size=1, max_size=12)
SOURCES = st.integers(0, 2**32).map(random.Random)


def having(num_sessions: int) -> Load:
    return Load(left_out=False, num_sessions=num_sessions)


@given(LOADS, SOURCES)
def test_everybody_is_in_the_order_once(loads, source):
    assert sorted(in_turn(loads, source)) == list(range(len(loads)))


@given(LOADS, SOURCES)
def test_behind_the_first_the_least_loaded_come_first(loads, source):
    _, *others = in_turn(loads, source)
    assert [loads[index] for index in others] == sorted(loads[index] for index in others)


@given(LOADS, SOURCES)
def test_nobody_who_is_left_out_comes_first_while_another_is_there(loads, source):
    first = loads[in_turn(loads, source)[0]]
    assert first.left_out == all(load.left_out for load in loads)


@given(LOADS, SOURCES)
def test_the_most_loaded_of_all_is_never_first(loads, source):
    eligible = [load for load in loads if not load.left_out] or loads
    if len(eligible) > 1 and eligible.count(max(eligible)) == 1:
        assert loads[in_turn(loads, source)[0]] != max(eligible)


@given(COUNTS, COUNTS, SOURCES)
def test_of_two_the_less_loaded_is_first(left, right, source):
    first, _ = in_turn([having(left), having(right)], source)
    assert (left, right)[first] == min(left, right)


def test_nobody_is_nobody():
    assert in_turn([], random.Random(0)) == []


@given(SOURCES, st.integers(2, 16))
def test_sessions_spread_evenly_where_each_is_counted_at_once(source, num_workers):
    counts = [0] * num_workers
    for _ in range(64 * num_workers):
        counts[in_turn([having(count) for count in counts], source)[0]] += 1
    # One choice at random would be off by tens.
    assert max(counts) - 64 <= 6


def test_of_an_old_report_two_schedulers_do_not_both_choose_the_same():
    """All of many schedulers that see the same loads go to several workers, not to the one that was least."""
    loads = [having(count) for count in range(8)]
    chosen = {in_turn(loads, random.Random(seed))[0] for seed in range(200)}
    assert chosen == set(range(7))


@given(COUNTS, COUNTS, COUNTS)
def test_ours_are_known_and_those_of_others_are_as_reported(own, own_then, of_others):
    assert num_sessions(own, own_then, own_then + of_others) == own + of_others


@given(COUNTS, COUNTS, COUNTS)
def test_ours_count_whatever_was_reported(own, own_then, reported):
    assert num_sessions(own, own_then, reported) >= own
