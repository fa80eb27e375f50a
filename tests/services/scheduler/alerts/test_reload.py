"""A fallen acceptance against real processes: the draft is loaded again under running sessions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from outrider.client import Completion, OutriderClient, SamplingParameters
from outrider.wire.state import WorkerState
from services.scheduler.alerts import FleetPort
from tests.support.alerting import Scene
from tests.support.calls import model_info, state_of, until_drafts_ready
from tests.support.cluster import Cluster, start_all
from tests.support.deployment import Answer, Question
from tests.support.models import tiny_model, with_noise

SMALL = {
    "OUTRIDER_NUM_THREADS": "1",
    "OUTRIDER_KV_BUDGET_MIB": "16",
    "OUTRIDER_DTYPE": "float32",
    "OUTRIDER_METRICS_PORT": "off",
}
QUESTION = Question(
    "The zebra runs past the old mill.", SamplingParameters(max_tokens=200, ignore_eos=True), seed=3, k=3
)


@dataclass
class Told:
    """Workers as a scheduler told of them."""

    validator_states: tuple[WorkerState, ...]
    draft_states: tuple[WorkerState, ...]


async def answers(client: OutriderClient, reloaded: asyncio.Event) -> list[Completion]:
    """One after the other, the last of them begun after the reload."""
    found = []
    while not reloaded.is_set():
        found.append(await Answer(client, QUESTION).completion())
    found.append(await Answer(client, QUESTION).completion())
    return found


async def test_a_fallen_acceptance_reloads_the_draft_while_sessions_go_on(tmp_path: Path):
    model = tiny_model(tmp_path / "tiny")
    with Cluster(tmp_path, SMALL) as cluster:
        validator = cluster.validator(model)
        draft = cluster.draft(with_noise(model, tmp_path / "draft", scale=0.1))
        start_all(validator, draft)
        scheduler = cluster.scheduler([validator], [draft.address]).start()
        gateway = cluster.gateway(scheduler).start()
        await until_drafts_ready(scheduler.address)
        before = (await model_info(draft.address)).model_version
        state = await state_of(scheduler.address)
        scene = Scene(port=FleetPort(Told(state.validators, state.drafts)))
        scene.version = before
        await scene.drafts(1800, 0.8)
        async with OutriderClient(gateway.address) as client:
            wanted = await Answer(client, QUESTION).completion()
            assert wanted.final.counters.drafted > 0
            answering = asyncio.create_task(answers(client, reloaded := asyncio.Event()))
            await scene.drafts(600, 0.2)
            reloaded.set()
            found = await answering
        after = (await model_info(draft.address)).model_version
    assert after != before
    assert scene.events("draft_acceptance_low")[:2] == ["fired", "acted"]
    (acted,) = [event for event in scene.alerts.history if event.kind == "acted"]
    assert f"{before} again, now {after}" in acted.message
    assert [each.token_ids for each in found] == [wanted.token_ids] * len(found)
    # The draft is there after it, too.
    assert found[-1].final.counters.drafted > 0
    assert found[-1].final.draft_status == ""
