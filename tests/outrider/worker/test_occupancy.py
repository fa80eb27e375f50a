import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.occupancy import Occupancy

MS = 1_000_000


class Clock:
    def __init__(self):
        self.now_ns = 5_000 * MS

    def __call__(self):
        return self.now_ns

    def passes(self, ms):
        self.now_ns += ms * MS


@pytest.fixture
def clock():
    return Clock()


def test_it_is_the_computing_part_of_the_last_second(clock):
    occupancy = Occupancy(clock)
    assert occupancy.share == 0.0
    clock.passes(200)
    occupancy.begin()
    clock.passes(300)
    occupancy.end()
    clock.passes(400)
    occupancy.begin()
    clock.passes(100)
    assert occupancy.share == pytest.approx(0.4)
    occupancy.end()
    # Of the first stretch 0.2 s are more than a second ago.
    clock.passes(400)
    assert occupancy.share == pytest.approx(0.2)
    clock.passes(2000)
    assert occupancy.share == 0.0


def test_a_forward_longer_than_the_second_fills_it(clock):
    occupancy = Occupancy(clock)
    occupancy.begin()
    clock.passes(3000)
    assert occupancy.share == 1.0
    occupancy.end()
    assert occupancy.share == 1.0
    clock.passes(250)
    assert occupancy.share == pytest.approx(0.75)


def test_an_end_without_a_beginning_is_nothing(clock):
    occupancy = Occupancy(clock)
    occupancy.end()
    assert occupancy.share == 0.0


@given(
    steps=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 700)), max_size=30),
    rest=st.integers(0, 1500),
)
def test_it_is_what_counting_each_millisecond_gives(steps, rest):
    clock, busy = Clock(), []
    occupancy = Occupancy(clock)
    for idle_ms, busy_ms in steps:
        clock.passes(idle_ms)
        occupancy.begin()
        clock.passes(busy_ms)
        occupancy.end()
        busy += [0] * idle_ms + [1] * busy_ms
    clock.passes(rest)
    busy += [0] * rest
    assert occupancy.share == pytest.approx(sum(busy[-1000:]) / 1000)
