"""The set of workers: who joins and leaves, who is placed where, and who is left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from outrider.rpc.errors import Internal, OutriderError, ResourceExhausted
from outrider.sampling.parameters import SamplingParameters
from outrider.wire.draft import OpenDraft, Proposal, Propose
from outrider.wire.state import WorkerStatus
from outrider.wire.worker import Header, TokenizerFiles
from services.scheduler import discovery, health
from services.scheduler.fleet import Fleet
from services.scheduler.health import MAX_FAILURES
from services.scheduler.latency import PATIENCE
from services.scheduler.ports import PeerLost
from services.scheduler.settings import SchedulerSettings
from tests.support.reference_target import ReferenceTarget, model_info
from tests.support.scripted_workers import (
    DraftBrain,
    ScriptedWorker,
    oracle,
    scripted_draft,
    scripted_validator,
    serving,
)
from tests.support.waiting import until

TARGET = ReferenceTarget()
PROMPT = (5, 6, 7)
OPENING = OpenDraft(PROMPT, len(PROMPT), SamplingParameters(), 7, first=Propose((), k=2))


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch):
    monkeypatch.setattr(discovery, "LOOK_UP_EVERY_S", 0.01)


@dataclass
class Names:
    """One name, `workers`, and the ports that it stands for."""

    addresses: list[str] = field(default_factory=list)

    async def __call__(self, name: str, port: int) -> list[str]:
        assert (name, port) == ("workers", 1)
        return list(self.addresses)


@dataclass
class House:
    """A fleet, and the means to start workers for it."""

    stack: AsyncExitStack
    fleet: Any = None

    async def start(self, worker: ScriptedWorker) -> str:
        """Until the end of the test."""
        return await self.stack.enter_async_context(serving(worker))

    async def watch(self, resolver: Any = None, **settings: Any) -> Fleet:
        chosen = SchedulerSettings(**{"drafts": (), **settings})
        fleet = Fleet(chosen, resolver=resolver) if resolver else Fleet(chosen)
        await self.stack.enter_async_context(fleet)
        self.fleet = fleet
        return fleet

    async def ask(self, port: Any, number: int = 0, **changes: Any) -> Proposal:
        """Open a session at this draft."""
        header = Header(number.to_bytes(16, "big"), 1, 1, len(PROMPT))
        answer: Proposal = await asyncio.wait_for(port.ask(header, replace(OPENING, **changes)), 10)
        return answer

    async def fail(self, port: Any, *errors: OutriderError) -> None:
        """Let the draft at this port fail sessions."""
        for number, error in enumerate(errors):
            brain = self.brains[port.address]
            brain.refusals.append(error)
            with pytest.raises(type(error)):
                await self.ask(port, number)

    brains: dict[str, DraftBrain] = field(default_factory=dict)

    async def drafts(self, *models: str, **settings: Any) -> Fleet:
        """A fleet of a validator and a draft of each of these models."""
        addresses = []
        for model in models:
            worker = scripted_draft(oracle(TARGET), model_info(model=model))
            addresses.append(await self.start(worker))
            assert isinstance(worker.brain, DraftBrain)
            self.brains[addresses[-1]] = worker.brain
            self.workers[addresses[-1]] = worker
        fleet = await self.watch(
            validators=(await self.start(scripted_validator()),), drafts=tuple(addresses), **settings
        )
        await until(lambda: len(fleet._drafts.ready) == len(models))
        return fleet

    workers: dict[str, ScriptedWorker] = field(default_factory=dict)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        yield House(stack)


def by_name(state: Any) -> dict[str, Any]:
    return {each.address: each for each in state}


# Names.


async def test_every_address_of_a_name_is_a_worker_and_new_ones_join(house):
    first, second = await house.start(scripted_validator()), await house.start(scripted_validator())
    names = Names()
    fleet = await house.watch(names, validators=("dns:workers:1",))
    await until(lambda: fleet.validator_states[0].reason == "the name has no address")
    assert fleet.why_no_validator() == "dns:workers:1: the name has no address"
    names.addresses = [first]
    await until(fleet.validators)
    names.addresses = [first, second]
    await until(lambda: len(fleet.validators()) == 2)
    assert set(by_name(fleet.validator_states)) == {first, second}


async def test_a_worker_without_an_address_stays_until_its_stream_ends(house):
    names = Names()
    async with serving(scripted_validator()) as address:
        names.addresses = [address]
        fleet = await house.watch(names, validators=("dns:workers:1",))
        await until(fleet.validators)
        names.addresses = []
        await asyncio.sleep(0.1)
        assert fleet.validators()
    await until(lambda: address not in by_name(fleet.validator_states))
    assert fleet.validators() == []


async def test_a_worker_that_was_given_by_its_address_is_waited_for_for_ever(house):
    async with serving(scripted_validator()) as address:
        fleet = await house.watch(Names(), validators=(address, "dns:workers:1"))
        await until(fleet.validators)
    await until(lambda: not fleet.validators())
    await asyncio.sleep(0.1)
    assert by_name(fleet.validator_states)[address].status is WorkerStatus.UNREACHABLE


async def test_drafts_are_judged_anew_when_the_targets_of_a_name_are_replaced_by_others(house):
    newer = ReferenceTarget(model_info(model="newer", tokenizer_fingerprint="x"))
    files = TokenizerFiles(b'{"model": {"vocab": {"z": 0}}}', "", {}, "x")
    names = Names()
    draft = await house.start(scripted_draft(oracle(TARGET)))
    async with serving(scripted_validator()) as old:
        names.addresses = [old]
        fleet = await house.watch(names, validators=("dns:workers:1",), drafts=(draft,))
        await until(fleet.draft)
    names.addresses = []
    await until(lambda: old not in by_name(fleet.validator_states))
    names.addresses = [await house.start(scripted_validator(newer, tokenizer=files))]
    await until(lambda: fleet.draft_states[0].status is WorkerStatus.REFUSED)
    assert "tokenizers differ" in fleet.draft_states[0].reason


# Placement.


async def test_sessions_go_to_the_draft_that_has_fewer(house):
    fleet = await house.drafts("a", "a")
    for number in range(10):
        await house.ask(fleet.draft(), number)
    assert sorted(len(brain.sessions) for brain in house.brains.values()) == [5, 5]


async def test_drafts_of_several_models_are_told_apart(house):
    fleet = await house.drafts("small", "large", "small")
    assert fleet.draft_models() == ("large", "small")
    assert {fleet.draft("small").info.model for _ in range(20)} == {"small"}
    assert fleet.draft("large").info.model == "large"
    assert fleet.draft("another") is None
    assert fleet.draft() is not None


# Health.


async def test_a_draft_that_fails_again_and_again_is_left_out_and_comes_back(house, monkeypatch):
    monkeypatch.setattr(health, "FIRST_PAUSE_S", 0.05)
    fleet = await house.drafts("a", "b")
    broken = fleet.draft("a")
    await house.fail(broken, *[Internal("it is broken")] * MAX_FAILURES)
    assert fleet.draft_models() == ("b",)
    assert fleet.draft("a") is None
    state = by_name(fleet.draft_states)[broken.address]
    assert state.reason == "left out for a while: it is broken"
    assert fleet.why_no_draft() == "refused:left out for a while: it is broken"
    await until(lambda: fleet.draft("a"))
    assert by_name(fleet.draft_states)[broken.address].reason == ""
    await house.ask(fleet.draft("a"), 77)


async def test_a_refusal_for_load_is_no_failure(house):
    fleet = await house.drafts("a")
    await house.fail(fleet.draft(), *[ResourceExhausted("full")] * (2 * MAX_FAILURES))
    assert fleet.draft() is not None


async def test_c59_a_draft_that_nobody_waits_for_gets_no_new_sessions_until_it_speaks(house):
    fleet = await house.drafts("a", "b")
    silent = fleet.draft("a")
    await house.ask(silent)
    for _ in range(PATIENCE):
        silent.latency.waited_in_vain()
    assert fleet.draft_models() == ("b",)
    assert silent.latency.bound_s(4) == 0.0
    # The session that it still has is answered after all.
    header = Header(bytes(16), 1, 2, len(PROMPT))
    await silent.ask(header, Propose((), k=2))
    assert fleet.draft_models() == ("a", "b")
    assert silent.latency.bound_s(4) > 0


async def test_a_draft_whose_streams_break_under_its_sessions_is_left_out(house):
    fleet = await house.drafts("a", "b")
    worker = house.workers[fleet.draft("a").address]
    worker.cut = lambda *_: True
    for number in range(MAX_FAILURES):
        await until(lambda: fleet.draft("a"))
        with pytest.raises(PeerLost):
            await house.ask(fleet.draft("a"), number)
    await until(lambda: "its streams end" in by_name(fleet.draft_states)[_address_of(worker, house)].reason)
    assert fleet.draft_models() == ("b",)


def _address_of(worker: ScriptedWorker, house: House) -> str:
    return next(address for address, each in house.workers.items() if each is worker)


async def test_validators_that_are_all_left_out_are_better_than_none(house):
    fleet = await house.watch(validators=tuple([await house.start(scripted_validator()) for _ in range(2)]))
    await until(lambda: len(fleet.validators()) == 2)
    first, second = fleet.validators()
    first.health.leave_out("it fails")
    assert [[each.address for each in fleet.validators()] for _ in range(20)] == [
        [second.address, first.address]
    ] * 20
    second.health.leave_out("so does it")
    assert len(fleet.validators()) == 2


# A worker that loads another model.


async def test_a_model_that_was_loaded_meanwhile_is_known_from_its_first_answer_on(house):
    fleet = await house.drafts("before")
    port = fleet.draft()
    worker = house.workers[port.address]
    await house.ask(port)
    worker.info = replace(worker.info, model="after", model_version="2")
    brain = house.brains[port.address]
    answer = brain.round

    def round_(header: Any, command: Any, held: Any) -> Any:
        events = answer(header, command, held)
        return [each._replace(event=replace(each.event, model_version="2")) for each in events]

    brain.round = round_  # as after a reload
    assert fleet.draft_models() == ("before",)
    await house.ask(port, 1)
    await until(lambda: fleet.draft_models() == ("after",))
    assert worker.num_streams == 1
    assert fleet.draft("after") is port
