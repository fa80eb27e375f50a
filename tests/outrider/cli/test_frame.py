"""One frame of `outrider top`, from states alone."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from outrider.cli.frame import frame
from outrider.wire.generation import DraftSource
from outrider.wire.state import (
    AlertEvent,
    AlertState,
    ControlState,
    SchedulerState,
    SourceState,
    StoreState,
    WorkerState,
    WorkerStatus,
)
from outrider.wire.worker import Exactness, ModelInfo, WorkerLoad

INFO = ModelInfo("big", "w", "t", 9, 9, "n", Exactness.BITWISE, "bfloat16", "cpu", (), "1", b"i")
LOAD = WorkerLoad(3, 2, 64, 48, 2 * 10**9, 8 * 10**9, 0.5)
CONTROL = ControlState(
    policy="adaptive",
    committed=300,
    tokens_per_s=12.5,
    rounds_by_k=(10, 0, 0, 90),
    sources=(
        SourceState(DraftSource.MODEL, 200, 100, (90, 80, 30), (60, 30, 10)),
        SourceState(DraftSource.PATTERN_CACHE, 10, 9, (5, 5), (5, 4)),
    ),
    figures={"validation_latency": 34.4, "main_model_utilization": 0.93},
)
STATE = SchedulerState(
    validators=(WorkerState("10.0.0.1:50052", WorkerStatus.READY, info=INFO, load=LOAD),),
    drafts=(WorkerState("10.0.0.2:50053", WorkerStatus.REFUSED, "id 7 differs: 'a' and 'b'", INFO),),
    num_sessions=3,
    num_waiting=1,
    control=CONTROL,
    alerts=(
        AlertState(
            "low",
            "acceptance_rate",
            "CRITICAL",
            firing=True,
            value=0.25,
            low=0.6,
            action="reload_draft",
            since_unix_ms=10**12,
        ),
        AlertState("slow", "validation_latency", "WARNING", value=34.0, high=250.0),
    ),
    alert_history=tuple(AlertEvent(10**12, f"rule {n}", "fired", f"message {n}") for n in range(8)),
    store=StoreState("redis", healthy=False, reason="connection refused", num_hits=3, num_misses=1),
)


def drawn(before, now, elapsed_s=10.0, *, width=100, address="", color=False):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=color, color_system="standard" if color else None)
    console.print(frame(before, now, elapsed_s, address=address))
    return out.getvalue()


def test_all_that_a_scheduler_says_is_there():
    text = drawn(None, STATE, address="10.0.0.9:50051")
    for part in (
        "scheduler 10.0.0.9:50051 · adaptive · 3 sessions running · 1 waiting",
        "rounds since the start",
        "12.5 tokens/s · tau 3.00 · verdict 34 ms · target busy 93%",
        "0 ▂ 10%  3 █ 90% · mean 2.7 of 100 rounds",
        "model           ██████░░░░░░  50% 100 of 200 · by depth ▆▄▃ 67% to 33%",
        "pattern_cache   ███████████░  90% 9 of 10 · by depth █▇ 100% to 80%",
        "validator 10.0.0.1:50052 ready · big bfloat16 on cpu",
        "3 sessions · 2 waiting · KV ███░░░░░░░░░ 16 of 64 pages · memory 2GB of 8GB (25%) · busy 50%",
        "draft     10.0.0.2:50053 refused",
        "id 7 differs: 'a' and 'b'",
        "alerts 1 of 2 rules firing",
        "CRITICAL low: acceptance_rate is 0.25, fires below 0.6 · since ",
        " · reload_draft",
        "store redis failing (connection refused) · 3 of 4 look-ups found something",
    ):
        assert part in text, part
    assert "slow" not in text


def test_the_newest_events_come_first_and_old_ones_not_at_all():
    lines = [line for line in drawn(None, STATE).splitlines() if "fired: message" in line]
    assert [line.split()[2] for line in lines] == ["7", "6", "5", "4", "3"]


def test_between_two_states_only_what_happened_in_between_counts():
    later = replace(
        CONTROL,
        committed=350,
        rounds_by_k=(10, 0, 0, 90, 20),
        sources=(
            replace(CONTROL.sources[0], drafted=280, accepted=110, drafted_by_position=(110, 100, 50, 20)),
        ),
    )
    text = drawn(STATE, replace(STATE, control=later), 5.0)
    assert "rounds last 5 s" in text
    assert "12.5 tokens/s · 10.0 now · tau 2.50" in text
    assert "4 █ 100% · mean 4.0 of 20 rounds" in text
    assert "12% 10 of 80" in text
    assert "pattern_cache" not in text


@pytest.mark.parametrize(
    "now",
    [
        STATE,
        replace(STATE, control=replace(CONTROL, committed=3, rounds_by_k=(0, 1), sources=())),
        replace(STATE, control=replace(CONTROL, committed=3, rounds_by_k=(11,))),
    ],
    ids=["nothing happened", "it started again", "it started again and is faster"],
)
def test_without_a_difference_the_figures_are_those_since_the_start(now):
    assert drawn(STATE, now) == drawn(None, now)


def test_a_scheduler_that_has_done_nothing_has_a_frame():
    text = drawn(None, SchedulerState())
    for part in (
        "0 sessions running",
        "no round yet",
        "drafts  none",
        "0 of 0 rules firing",
        "store unknown",
    ):
        assert part in text


def test_a_cap_of_the_alerts_is_told():
    assert "at most 2 (alerts)" in drawn(None, replace(STATE, control=replace(CONTROL, depth_cap=2)))


def test_what_others_say_can_not_command_the_terminal():
    evil = "\x1b[2J\n[red]x"
    state = SchedulerState(
        drafts=(WorkerState(evil, WorkerStatus.REFUSED, evil, replace(INFO, model=evil)),),
        alerts=(AlertState(evil, evil, evil, firing=True, action=evil),),
        alert_history=(AlertEvent(0, evil, evil, evil),),
        store=StoreState(evil, healthy=False, reason=evil),
        control=ControlState(policy=evil),
    )
    text = drawn(None, state, width=500)
    assert "\x1b" not in text
    assert text.count("�[2J�[red]x") == 13


def test_colour_is_for_terminals():
    assert "\x1b[" in drawn(None, STATE, color=True)
    assert "\x1b[" not in drawn(None, STATE)


COUNTS = st.lists(st.integers(0, 10**6), max_size=6).map(tuple)
CONTROLS = st.builds(
    ControlState,
    committed=st.integers(0, 10**9),
    tokens_per_s=st.floats(0, 1e6),
    rounds_by_k=COUNTS,
    sources=st.lists(
        st.builds(
            SourceState,
            st.sampled_from(DraftSource),
            st.integers(0, 10**6),
            st.integers(0, 10**6),
            COUNTS,
            COUNTS,
        ),
        max_size=3,
    ).map(tuple),
)


@given(CONTROLS, CONTROLS, st.integers(20, 120))
def test_any_two_states_fit_any_terminal(before, now, width):
    text = drawn(replace(STATE, control=before), replace(STATE, control=now), width=width)
    assert all(len(line) <= width for line in text.splitlines())
