"""Alerts as a whole, with time that a test turns."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from outrider.rpc.errors import Unavailable
from outrider.telemetry import Attr, In, Metrics, SpanName, tracing_to
from outrider.telemetry.names import ATTRIBUTES
from outrider.wire.state import SchedulerState, state_from_pb, state_to_pb
from services.scheduler.alerts import Rule
from services.scheduler.alerts.telling import HISTORY
from tests.support.alerting import Scene
from tests.support.metrics import parsed

HOUR = 3600.0
LOW, FALLEN = "draft_acceptance_low", "acceptance_below_baseline"


async def falls(scene: Scene, acceptance: float) -> None:
    """Until the draft has been loaded once more."""
    before = len(scene.port.reloads)
    async with asyncio.timeout(30):
        while len(scene.port.reloads) == before:
            await scene.drafts(5, acceptance)


async def test_acceptance_that_has_fallen_for_five_minutes_reloads_the_draft_and_recovers():
    scene = Scene()
    await scene.drafts(1800, 0.8)
    assert scene.alerts.history == ()
    began = scene.clock.now
    await falls(scene, 0.3)
    ((at, version),) = scene.port.reloads
    assert version == "v0"
    # The last minute has to be below it first, and then five minutes long.
    assert 300 <= at - began <= 400
    assert {LOW, FALLEN} <= scene.firing()
    await scene.drafts(900, 0.8)
    assert not scene.firing()
    assert scene.events(LOW) == ["fired", "acted", "resolved"]
    assert scene.events(FALLEN) == ["fired", "resolved"]
    assert len(scene.port.reloads) == 1
    acted = next(event for event in scene.alerts.history if event.kind == "acted")
    assert re.fullmatch(
        r"loaded the draft of version v0 again, now v1: acceptance on code is 0\.[34]\d, its baseline 0\.\d+",
        acted.message,
    )


async def test_a_workload_that_is_drafted_badly_for_good_reloads_nothing():
    scene = Scene()
    await scene.drafts(2 * HOUR, 0.38, "prose")
    assert scene.port.reloads == []
    assert scene.firing() == {LOW}
    events = [event for event in scene.alerts.history if event.name == LOW]
    assert [event.kind for event in events] == ["fired", "refused"]
    assert events[1].message == "no reload: acceptance on prose is 0.38, its baseline not known yet"


async def test_one_workload_that_falls_beside_another_that_is_low_for_good():
    scene = Scene()
    for _ in range(240):
        await scene.drafts(5, 0.38, "prose")
        await scene.drafts(5, 0.8, "code")
    assert scene.port.reloads == []
    for _ in range(60):
        await scene.drafts(5, 0.38, "prose")
        await scene.drafts(5, 0.3, "code")
    assert [version for _, version in scene.port.reloads] == ["v0"]
    acted = next(event for event in scene.alerts.history if event.kind == "acted")
    assert "on code" in acted.message
    assert "on prose" not in acted.message


async def test_a_reload_that_did_not_help_is_not_tried_again():
    scene = Scene()
    await scene.drafts(1800, 0.8)
    await scene.drafts(3 * HOUR, 0.3)
    assert len(scene.port.reloads) == 1
    messages = [event.message for event in scene.alerts.history if event.kind == "refused"]
    assert "no reload: the last reload has not helped" in messages
    # It has come back by itself, and falls once more.
    await scene.drafts(HOUR, 0.85)
    await scene.drafts(600, 0.2)
    assert len(scene.port.reloads) == 2


async def test_a_reload_that_helped_may_be_repeated_but_not_within_the_hour():
    scene = Scene()
    await scene.drafts(1800, 0.8)
    await falls(scene, 0.2)
    await scene.drafts(600, 0.8)
    assert not scene.firing()
    await scene.drafts(1200, 0.2)
    assert len(scene.port.reloads) == 1
    refused = [event.message for event in scene.alerts.history if event.kind == "refused"]
    assert len(refused) == 1
    assert re.fullmatch(r"no reload: the last one began \d+ s ago, and 3600 s must pass", refused[0])
    await scene.drafts(2100, 0.2)
    first, second = (at for at, _ in scene.port.reloads)
    assert HOUR <= second - first <= HOUR + 10


async def test_a_reload_that_fails_is_told_and_counts():
    scene = Scene()
    scene.port.error = Unavailable("the draft is gone")
    await scene.drafts(1800, 0.8)
    await scene.drafts(1200, 0.3)
    assert len(scene.port.reloads) == 1
    (event,) = [each for each in scene.alerts.history if "not loaded" in each.message]
    assert event.kind == "refused"
    assert event.message == "the draft of version v0 was not loaded again: the draft is gone"


@settings(max_examples=12, deadline=None)
@given(
    stretches=st.lists(
        st.tuples(
            st.sampled_from([60, 300, 600, 1500]), st.floats(0, 1), st.sampled_from(["code", "prose", ""])
        ),
        min_size=10,
        max_size=24,
    )
)
def test_whatever_the_figures_are_an_hour_lies_between_two_reloads(stretches):
    async def live() -> Scene:
        scene = Scene()
        await scene.drafts(1500, 0.9)
        for seconds, acceptance, workload in stretches:
            await scene.drafts(seconds, acceptance, workload, every_s=10)
        return scene

    scene = asyncio.run(live())
    assert all(later - earlier >= HOUR for (earlier, _), (later, _) in pairwise(scene.port.reloads))
    changes = [kind for kind in scene.events(LOW) if kind in ("fired", "resolved")]
    assert changes == ["fired", "resolved"] * (len(changes) // 2) + ["fired"] * (len(changes) % 2)


async def test_short_memory_lowers_the_candidates_and_gives_them_back():
    scene = Scene()
    scene.memory(0.5)
    await scene.passes(60)
    assert scene.alerts.depth_cap is None
    scene.memory(0.95)
    seen = []
    for _ in range(60):
        await scene.passes(1)
        seen.append(scene.alerts.depth_cap)
    assert list(dict.fromkeys(seen)) == [None, 8, 4, 2, 1]
    assert seen[9] is None
    scene.memory(0.88)
    await scene.passes(300)
    assert scene.alerts.depth_cap == 1
    scene.memory(0.7)
    seen = []
    for _ in range(60):
        await scene.passes(1)
        seen.append(scene.alerts.depth_cap)
    assert list(dict.fromkeys(seen)) == [1, 2, 4, 8, None]
    assert scene.events("memory_short") == ["fired", *["acted"] * 4, "resolved", *["acted"] * 4]


async def test_figures_that_are_not_known_leave_everything_as_it_is():
    scene = Scene()
    scene.memory(0.95)
    await scene.passes(25)
    cap, firing = scene.alerts.depth_cap, scene.firing()
    assert (cap, firing) == (4, {"memory_short"})
    scene.port.validator_states = ()
    await scene.passes(600)
    assert (scene.alerts.depth_cap, scene.firing()) == (cap, firing)


async def test_default_levels_of_a_slow_draft():
    scene = Scene()

    async def waits(seconds):
        for _ in range(120):
            scene.figures.proposed(seconds)
            await scene.passes(1)
        return scene.firing()

    assert await waits(0.04) == set()
    assert await waits(0.1) == {"draft_slow"}
    assert await waits(0.3) == {"draft_slow", "draft_very_slow"}
    levels = {state.name: state.level for state in scene.alerts.states}
    assert (levels["draft_slow"], levels["draft_very_slow"]) == ("WARNING", "CRITICAL")
    assert await waits(0.04) == set()


async def test_events_are_a_log_line_a_span_a_metric_and_a_change_of_state():
    exporter, metrics, told = InMemorySpanExporter(), Metrics(In.SCHEDULER), []
    tracing = tracing_to(SimpleSpanProcessor(exporter), "outrider-scheduler", "one")
    rules = [Rule("quiet", "throughput", low=5, window_s=2), Rule("loud", "throughput", high=50, window_s=2)]
    scene = Scene(rules, tracing=tracing, metrics=metrics, notify=lambda: told.append(True))

    def scraped(name: str) -> dict[str, float]:
        return parsed(generate_latest(metrics.registry).decode()).values(name, "alert", level="WARNING")

    assert scraped("alert_firing") == scraped("alerts_fired_total") == {"quiet": 0, "loud": 0}
    with structlog.testing.capture_logs() as lines:
        await scene.passes(3)
        assert scraped("alert_firing") == {"quiet": 1, "loud": 0}
        scene.figures.committed(200)
        await scene.passes(3)
    assert scraped("alert_firing") == {"quiet": 0, "loud": 0}
    assert scraped("alerts_fired_total") == {"quiet": 1, "loud": 0}
    assert [(line["event"], line["log_level"], line["alert"]) for line in lines] == [
        ("alert_fired", "warning", "quiet"),
        ("alert_resolved", "info", "quiet"),
    ]
    assert lines[0]["detail"] == "throughput is 0, should be at least 5, and was out of bounds for 2 s"
    fired, resolved = exporter.get_finished_spans()
    assert (fired.name, fired.parent) == (SpanName.ALERT, None)
    assert fired.context.trace_id != resolved.context.trace_id
    assert fired.attributes.keys() <= ATTRIBUTES
    assert fired.attributes[Attr.ALERT_KIND] == "fired"
    assert fired.attributes[Attr.ALERT_VALUE] == 0.0
    assert len(told) == 2
    tracing.shutdown()


async def test_state_and_history_cross_the_wire():
    scene = Scene([Rule("quiet", "throughput", low=5, window_s=2), Rule("range", "memory_share", 0.1, 0.9)])
    began_ms = round(1000 * scene.clock.now)
    await scene.passes(3)
    quiet, unknown = scene.alerts.states
    assert (quiet.firing, quiet.value, quiet.low, quiet.high) == (True, 0.0, 5, None)
    assert quiet.since_unix_ms == began_ms + 3000
    assert (unknown.firing, unknown.value, unknown.low, unknown.high) == (False, None, 0.1, 0.9)
    assert unknown.since_unix_ms == began_ms
    state = SchedulerState(alerts=scene.alerts.states, alert_history=scene.alerts.history)
    assert state_from_pb(state_to_pb(state)) == state


async def test_the_history_is_bounded():
    scene = Scene([Rule("flicker", "throughput", low=5, window_s=0)])
    for _ in range(HISTORY):
        await scene.passes(1)
        scene.figures.committed(10_000)
        await scene.passes(1)
        scene.clock.now += 60
    assert len(scene.alerts.history) == HISTORY
    assert scene.alerts.history[-1].kind == "resolved"


async def test_run_looks_until_it_is_cancelled():
    scene = Scene([Rule("quiet", "throughput", low=5, window_s=0)])
    task = asyncio.create_task(scene.alerts.run())
    while not scene.alerts.history:  # noqa: ASYNC110  # it tells nobody
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
