from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.alerts.depth import SMALLEST, DepthCap
from services.scheduler.alerts.evaluation import Watched, watch
from services.scheduler.alerts.rules import Action, Rule

RULE = Rule(
    "memory", "memory_share", high=0.9, window_s=0, action=Action.LOWER_DEPTH, cooldown_s=10, margin=0.1
)


class Memory:
    """A cap and the figure that it follows, looked at every ten seconds."""

    def __init__(self, max_depth=12, every_s=10.0):
        self.cap = DepthCap(RULE, max_depth)
        self.watched, self.now, self.every_s = Watched(), 0.0, every_s

    def at(self, *values):
        caps = []
        for value in values:
            self.now += self.every_s
            self.watched = watch(RULE, self.watched, value, self.now)
            self.cap.step(self.watched, self.now)
            caps.append(self.cap.cap)
        return caps


def test_short_memory_lowers_it_step_by_step_and_plenty_raises_it_again():
    memory = Memory()
    assert memory.at(0.5, 0.95, 0.95, 0.95, 0.95) == [None, 6, 3, 1, 1]
    assert memory.at(0.5, 0.5, 0.5, 0.5, 0.5) == [2, 4, 8, None, None]


def test_between_the_bounds_it_stays():
    memory = Memory()
    assert memory.at(0.95, 0.85, 0.9, 0.82, 0.85) == [6] * 5
    assert memory.at(0.8, 0.85, 0.9) == [None] * 3


def test_what_is_not_known_changes_nothing():
    memory = Memory()
    assert memory.at(None, 0.95, None, None) == [None, 6, 6, 6]


def test_steps_keep_their_distance():
    memory = Memory(every_s=4.0)
    assert memory.at(*[0.95] * 7) == [6, 6, 6, 3, 3, 3, 1]


@given(values=st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=60), max_depth=st.integers(1, 64))
def test_whatever_the_memory_does_the_cap_stays_in_range_and_steps_one_way_at_a_time(values, max_depth):
    memory = Memory(max_depth)
    before = max_depth
    for value in values:
        (cap,) = memory.at(value)
        depth = max_depth if cap is None else cap
        assert SMALLEST <= depth <= max_depth
        if value is None:
            assert depth == before
        elif value > 0.9:
            assert depth <= before
        else:
            assert depth >= before
        before = depth
