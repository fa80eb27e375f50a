import pytest

from services.scheduler.baselines import (
    ENOUGH_FOR_BASELINE,
    MAX_PAIRS,
    MEMORY,
    WATCHED_S,
    Baselines,
    Standing,
)


def drafted(baselines, now, seconds, acceptance, version="v", workload="code", tokens=100):
    """100 tokens each 10 s; the time afterwards."""
    for _ in range(round(seconds / 10)):
        now += 10
        baselines.judged(now, version, workload, tokens, round(acceptance * tokens))
    return now


def only(baselines, now):
    (standing,) = baselines.standings(now)
    return standing


def test_what_is_watched_is_no_part_of_what_is_usual():
    baselines = Baselines()
    now = drafted(baselines, 0, WATCHED_S, 0.8)
    standing = only(baselines, now)
    assert standing.watched == pytest.approx(0.8)
    assert (standing.baseline, standing.against_baseline) == (None, None)
    now = drafted(baselines, now, 1000, 0.8)
    assert only(baselines, now).baseline == pytest.approx(0.8)
    now = drafted(baselines, now, WATCHED_S, 0.4)
    standing = only(baselines, now)
    assert standing.baseline == pytest.approx(0.8)
    assert standing.watched == pytest.approx(0.4, abs=0.02)
    assert standing.fallen
    assert not standing.recovered


def test_workloads_and_loads_of_a_draft_are_told_apart():
    baselines = Baselines()
    drafted(baselines, 0, 300, 0.8)
    drafted(baselines, 0, 300, 0.3, workload="prose")
    now = drafted(baselines, 0, 300, 0.5, version="w")
    watched = {(each.model_version, each.workload): each.watched for each in baselines.standings(now)}
    assert watched == {
        ("v", "code"): pytest.approx(0.8),
        ("v", "prose"): pytest.approx(0.3),
        ("w", "code"): pytest.approx(0.5),
    }


def test_few_tokens_say_nothing():
    baselines = Baselines()
    now = drafted(baselines, 0, 60, 0.0, tokens=8)
    standing = only(baselines, now)
    assert (standing.latest, standing.watched, standing.baseline) == (None, None, None)
    assert not standing.fallen
    assert not standing.recovered


def test_a_draft_that_is_loaded_again_is_measured_by_what_it_was():
    baselines = Baselines()
    now = drafted(baselines, 0, 2 * WATCHED_S, 0.8)
    now = drafted(baselines, now, WATCHED_S, 0.2)
    baselines.reloaded(now, "v", "w")
    standing = only(baselines, now)
    assert standing.model_version == "w"
    assert standing.baseline == pytest.approx(0.8)
    assert standing.watched is None
    now = drafted(baselines, now, WATCHED_S, 0.76, version="w")
    assert only(baselines, now).recovered


def test_the_baseline_follows_what_stays():
    baselines = Baselines()
    now = drafted(baselines, 0, 2000, 0.8, tokens=1000)
    now = drafted(baselines, now, 20_000, 0.5, tokens=1000)
    standing = only(baselines, now)
    assert standing.baseline == pytest.approx(0.5, abs=0.02)
    assert not standing.fallen
    assert ENOUGH_FOR_BASELINE < MEMORY


def test_what_has_fallen_is_slow_to_pass_for_usual():
    baselines = Baselines()
    now = drafted(baselines, 0, 3600, 0.8)
    for _ in range(60):
        now = drafted(baselines, now, 60, 0.3)
        standing = only(baselines, now)
    assert standing.baseline > 0.7
    assert standing.fallen


def test_the_number_of_pairs_is_bounded():
    baselines = Baselines()
    for number in range(MAX_PAIRS + 20):
        baselines.judged(0, "v", "kept", 100, 50)
        baselines.judged(0, "v", str(number), 100, 50)
    standings = list(baselines.standings(0))
    assert len(standings) == MAX_PAIRS
    assert {"kept", str(MAX_PAIRS + 19)} <= {each.workload for each in standings}


@pytest.mark.parametrize(
    ("minutes", "for_s", "stays"),
    [
        ((0.5, 0.5, 0.5, 0.5, 0.5), 300, True),
        ((0.5, 0.5, 0.5, 0.7, 0.5), 300, False),
        ((0.5, 0.5, 0.5, 0.7, 0.5), 180, True),
        ((0.5, None, 0.5, None, 0.5), 300, True),
        ((0.5, None, 0.5, None, None), 300, False),
        ((None, 0.5, 0.5, 0.5, 0.5), 300, False),
        ((0.5, 0.7, 0.7, 0.7, 0.7), 0, True),
        ((0.5, 0.5, 0.5, 0.5, 0.5), 7200, True),
    ],
)
def test_staying_below_is_asked_of_each_minute(minutes, for_s, stays):
    assert Standing("v", "code", minutes, 0.5, None).stays_below(0.6, for_s) == stays
