"""A scheduler that is lost under a generation: another one goes on, and the client sees one answer."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from gateway import conversation
from outrider.client import OutriderClient, SamplingParameters
from outrider.rpc.errors import InvalidArgument, NotFound, ResourceExhausted, Unavailable
from outrider.sampling.acceptance import FinishReason
from tests.support.gateway import running_gateway
from tests.support.scripted import Backend, Script, scripted_backend
from tests.support.waiting import until

LOST = Unavailable("Socket closed")
"""What a call to a killed process ends with: no word of when to try again."""


@dataclass
class House:
    """Two schedulers, of which the first is asked first, and a gateway in front of them."""

    first: Backend
    second: Backend
    client: OutriderClient

    async def complete(self, **options: Any):
        sampling = SamplingParameters(max_tokens=options.pop("max_tokens", 16), ignore_eos=True)
        return await self.client.complete("one", sampling=sampling, seed=5, **options)


@pytest.fixture
async def house(files, info, monkeypatch):
    monkeypatch.setattr(conversation, "REOPEN_S", 1.0)
    monkeypatch.setattr(conversation, "PAUSE_S", 0.01)
    # The first of the list, whenever it is not known to be lost.
    monkeypatch.setattr(
        "gateway.schedulers.Schedulers.in_turn",
        lambda self: iter(sorted(self._all, key=lambda each: each.not_before_s > self._clock())),
    )
    async with _both(files, info) as found:
        yield found


@asynccontextmanager
async def _both(files, info):
    async with scripted_backend(files, info) as first, scripted_backend(files, info) as second:
        backend = type("Both", (), {"address": (first.address, second.address)})
        async with running_gateway(backend) as address, OutriderClient(address) as client:
            yield House(first, second, client)


async def test_another_scheduler_goes_on_where_the_lost_one_was(house, ids):
    one, two, three = ids("one"), ids("two"), ids("three")
    house.first.play(Script([one, two, three]))
    wanted = await house.complete()
    house.first.play(Script([one, two], end=LOST))
    rest = house.second.play(Script([three]))
    found = await house.complete()
    assert rest.request.output_so_far == (*one, *two)
    assert rest.request.numerics_id == "numerics"
    assert rest.request.seed == 5
    assert found.token_ids == wanted.token_ids
    assert found.text == wanted.text
    assert found.final.completion_tokens == wanted.final.completion_tokens
    assert found.final.counters.reopens == 1


async def test_a_scheduler_that_is_lost_before_it_began_is_passed_over(house, ids):
    house.first.play(Script(refusal=LOST))
    begun = house.second.play(Script([ids("one")]))
    found = await house.complete()
    assert begun.request.output_so_far == ()
    assert found.token_ids == ids("one")
    assert found.final.counters.reopens == 0


async def test_one_that_can_not_take_it_is_passed_over_and_not_held_lost(house, ids):
    house.first.play(Script(refusal=Unavailable("no validator is ready", retry_after_s=1.0)))
    house.second.play(Script([ids("one")]))
    await house.complete()
    again = house.first.play(Script([ids("two")]))
    assert (await house.complete()).token_ids == ids("two")
    assert again.num_sent == 1


async def test_a_generation_under_way_waits_for_room_and_a_new_one_is_refused(house, ids):
    one, two = ids("one"), ids("two")
    full = ResourceExhausted("256 requests wait already", retry_after_s=1.0)
    house.first.play(Script([one], end=LOST))
    refused = house.second.play(Script(refusal=full))
    asked = asyncio.create_task(house.complete())
    await until(lambda: refused.request)
    house.second.play(Script([two]))
    assert (await asked).token_ids == (*one, *two)
    house.first.play(Script(refusal=full))
    house.second.play(Script(refusal=full))
    with pytest.raises(ResourceExhausted, match="256 requests"):
        await house.complete()


async def test_a_scheduler_that_is_back_and_does_not_know_the_session_spoils_no_answer(house, ids):
    script = house.first.play(Script([ids("one two")], end=None))
    script.finish_refusal = NotFound("no session runs here")
    answer = asyncio.create_task(house.complete(stop=("two",)))
    await until(lambda: script.finishes)
    script.finished.set()
    found = await answer
    assert found.text == "one "
    assert found.final.finish_reason is FinishReason.STOP_STRING


async def test_what_the_caller_did_wrong_is_not_asked_twice(house):
    house.first.play(Script(refusal=InvalidArgument("speculation.k is 99", field="speculation.k")))
    untouched = house.second.play(Script())
    with pytest.raises(InvalidArgument, match=r"speculation\.k is 99"):
        await house.complete()
    assert untouched.request is None


async def test_when_all_are_lost_before_it_began_the_caller_hears_at_once(house):
    for backend in (house.first, house.second):
        backend.play(Script(refusal=LOST))
    with pytest.raises(Unavailable, match="is not reached"):
        await house.complete()


async def test_when_none_comes_back_the_answer_ends_with_an_error(house, ids):
    begun = house.first.play(Script([ids("one"), ids("two")], end=LOST, gate=asyncio.Semaphore(1)))
    house.second.play(Script(refusal=LOST))
    events = house.client.generate("one", sampling=SamplingParameters(max_tokens=16), seed=5)
    assert (await anext(events)).text == "one"
    house.first.play(Script(refusal=LOST))
    begun.gate.release()
    with pytest.raises(Unavailable, match="is not reached"):
        [event async for event in events]


async def test_an_answer_of_which_only_the_end_was_lost_is_whole(house, ids):
    one = ids("one")
    house.first.play(Script([one], end=LOST))
    untouched = house.second.play(Script())
    found = await house.complete(max_tokens=len(one))
    assert found.token_ids == one
    assert found.final.finish_reason is FinishReason.LENGTH
    assert untouched.request is None


async def test_a_stop_string_is_found_across_the_loss(house, ids):
    house.first.play(Script([ids("one"), ids("tw")], end=LOST))
    house.second.play(Script([ids("o and more")], end=None))
    found = await house.complete(stop=("two",))
    assert found.text == "one"
    assert found.final.finish_reason is FinishReason.STOP_STRING
    assert house.second.scheduler.script.finishes[0].kept_length == found.final.completion_tokens


async def test_a_scheduler_that_is_stopped_under_a_generation_is_lost(house, ids):
    one, two = ids("one"), ids("two")
    house.first.play(Script([one, two], gate=asyncio.Semaphore(1)))
    house.second.play(Script([two]))
    answer = asyncio.create_task(house.complete())
    await house.first.scheduler.script.sent.wait()
    await house.first.server.stop(0)
    found = await answer
    assert found.token_ids == (*one, *two)
    assert house.second.scheduler.script.request.output_so_far in ((), one)


async def test_that_the_replica_changed_is_not_forgotten_with_the_scheduler(house, ids):
    one, two, three = ids("one"), ids("two"), ids("three")
    begun, last = Script([one], end=LOST), Script([three], numerics_id="of another")
    house.first.scheduler.script_for = lambda asked: last if asked.output_so_far else begun
    house.second.play(Script([two], end=LOST, numerics_id="of another"))
    found = await house.complete()
    assert last.request.numerics_id == "of another"
    assert found.token_ids == (*one, *two, *three)
    assert found.final.changed_replica
    assert found.final.counters.reopens == 2
