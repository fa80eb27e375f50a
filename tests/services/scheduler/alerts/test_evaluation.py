from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.alerts.evaluation import Watched, watch
from services.scheduler.alerts.rules import Rule

RULE = Rule("r", "acceptance_rate", low=0.2, high=0.8, window_s=10, margin=0.1)
ON = Watched(firing=True)
values = st.one_of(st.none(), st.floats(0, 1))


def seen(rule, values, before=Watched(), every_s=1.0):  # noqa: B008  # a value
    """States behind each value, one a second."""
    states = []
    for number, value in enumerate(values):
        before = watch(rule, before, value, number * every_s)
        states.append(before)
    return states


def firing(rule, values, before=Watched()):  # noqa: B008  # a value
    return [state.firing for state in seen(rule, values, before)]


def test_it_fires_when_the_figure_was_out_of_bounds_for_the_window():
    assert firing(RULE, [0.1] * 12) == [False] * 10 + [True] * 2
    assert firing(RULE, [0.9] * 12) == [False] * 10 + [True] * 2
    assert firing(RULE, [0.1] * 9 + [0.5] + [0.1] * 9) == [False] * 19
    assert not any(firing(RULE, [0.2, 0.8] * 10))


def test_it_is_over_when_the_figure_was_inside_by_the_margin_for_the_window():
    assert firing(RULE, [0.5] * 12, ON) == [True] * 10 + [False] * 2
    assert firing(RULE, [0.5] * 9 + [0.75] + [0.5] * 9, ON) == [True] * 19


def test_without_a_window_one_look_is_enough():
    rule = Rule("r", "throughput", low=5, window_s=0, margin=0)
    assert firing(rule, [5, 4.9, 5, 4]) == [False, True, False, True]


def test_what_is_not_known_neither_fires_nor_ends_and_is_not_counted():
    assert not any(firing(RULE, [0.1] * 9 + [None] * 100))
    # Of the 9 s before it, and 1 s after it, until the figure has been seen for 10 s.
    assert firing(RULE, [0.1] * 10 + [None] * 50 + [0.1] * 3)[-3:] == [False, True, True]
    assert all(firing(RULE, [None] * 100, ON))
    assert watch(RULE, Watched(firing=True, value=0.5, seen_at=3.0), None, 4.0).value is None


def test_a_clock_that_is_set_back_counts_for_nothing():
    state = watch(RULE, Watched(), 0.1, 100.0)
    state = watch(RULE, state, 0.1, 0.0)
    assert (state.firing, state.held_s) == (False, 0.0)


@given(
    start=st.booleans(), band=st.lists(st.one_of(st.floats(0.2, 0.2199), st.floats(0.7201, 0.8), st.none()))
)
def test_inside_the_band_it_never_flaps(start, band):
    assert all(state is start for state in firing(RULE, band, Watched(firing=start)))


@given(history=st.lists(values, max_size=120))
def test_between_two_changes_lies_at_least_the_window_in_which_the_figure_asked_for_it(history):
    states = firing(RULE, history)
    changes = [number for number in range(1, len(states)) if states[number] != states[number - 1]]
    for earlier, later in zip([0, *changes], changes, strict=False):
        assert later - earlier >= RULE.window_s
        asked = [value for value in history[later - 10 : later + 1] if value is not None]
        wanted = RULE.outside if states[later] else RULE.inside
        assert asked
        assert all(wanted(value) for value in asked)


@given(history=st.lists(values, max_size=120))
def test_a_rule_with_one_bound_is_the_range_without_the_other(history):
    one, both = (Rule("r", "throughput", low=0.3, high=high, window_s=3) for high in (None, 9.0))
    assert firing(one, history) == firing(both, history)


def test_bounds_in_words():
    assert RULE.bounds == "0.2 to 0.8"
    assert Rule("r", "throughput", low=0.2).bounds == "at least 0.2"
    assert Rule("r", "throughput", high=200).bounds == "at most 200"
