import pytest

from services.scheduler.latency import ENOUGH_SAMPLES, FLOOR_S, PATIENCE, Latency


def test_the_cap_holds_until_enough_is_known():
    latency = Latency(1.0)
    for _ in range(ENOUGH_SAMPLES - 1):
        latency.answered(0.1, 1)
    assert latency.bound_s(1) == 1.0
    latency.answered(0.1, 1)
    assert latency.bound_s(1) == 0.2


def test_twice_the_p95_between_floor_and_cap():
    latency = Latency(1.0)
    for _ in range(64):
        latency.answered(0.0001, 1)
    assert latency.bound_s(1) == FLOOR_S
    for _ in range(64):
        latency.answered(10.0, 1)
    assert latency.bound_s(1) == 1.0


def test_one_slow_answer_of_many_does_not_move_it():
    latency = Latency(1.0)
    for seconds in [0.1] * 40 + [0.9]:
        latency.answered(seconds, 1)
    assert latency.bound_s(1) == 0.2


def test_shallow_answers_do_not_cut_off_a_deep_one():
    latency = Latency(10.0)
    for _ in range(64):
        latency.answered(0.05, 1)
    assert latency.bound_s(12) == pytest.approx(2 * 12 * 0.05)
    for _ in range(64):
        latency.answered(0.6, 12)
    assert latency.bound_s(12) == pytest.approx(2 * 12 * 0.05)
    assert latency.bound_s(1) == pytest.approx(0.1)


def test_an_empty_answer_counts_as_one_token():
    latency = Latency(1.0)
    for _ in range(ENOUGH_SAMPLES):
        latency.answered(0.1, 0)
    assert latency.bound_s(1) == 0.2


def test_nobody_waits_for_a_silent_draft_until_it_speaks():
    latency = Latency(1.0)
    for _ in range(PATIENCE):
        assert latency.bound_s(1) == 1.0
        latency.waited_in_vain()
    assert latency.bound_s(1) == 0.0
    latency.answered(0.1, 1)
    assert latency.bound_s(1) == 1.0
