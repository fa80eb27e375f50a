"""A worker that fails is left out for a while, and comes back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from services.scheduler.health import FIRST_PAUSE_S, LAST_PAUSE_S, MAX_FAILURES, Health


@dataclass
class Patient:
    """A health whose pauses last until the test ends them."""

    answers: bool = True
    pauses: list[float] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    num_probes: int = 0

    def __post_init__(self) -> None:
        self._awake = asyncio.Event()
        self.health = Health(self._probe, lambda: self.changes.append(self.health.reason), self._sleep)

    async def _probe(self) -> None:
        self.num_probes += 1
        if not self.answers:
            raise ConnectionError("nobody is there")

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await self._awake.wait()
        self._awake.clear()

    async def pass_pause(self) -> None:
        self._awake.set()
        for _ in range(10):
            await asyncio.sleep(0)

    async def fail(self, num: int = MAX_FAILURES) -> None:
        for number in range(num):
            self.health.failed(f"failure {number}")
        await asyncio.sleep(0)


@pytest.fixture
async def patient():
    patient = Patient()
    yield patient
    patient.health.close()


async def test_a_few_failures_are_forgiven(patient):
    await patient.fail(MAX_FAILURES - 1)
    patient.health.answered()
    await patient.fail(MAX_FAILURES - 1)
    assert not patient.health.left_out
    assert patient.changes == []


async def test_failures_in_a_row_leave_it_out_with_the_reason(patient):
    await patient.fail(MAX_FAILURES + 2)
    assert patient.health.left_out
    assert patient.changes == [f"failure {MAX_FAILURES - 1}"]
    assert patient.pauses == [FIRST_PAUSE_S]


async def test_it_comes_back_when_it_answers_after_the_pause(patient):
    await patient.fail()
    await patient.pass_pause()
    assert patient.num_probes == 1
    assert not patient.health.left_out
    assert patient.changes[-1] == ""


async def test_the_pause_grows_until_it_answers(patient):
    patient.answers = False
    await patient.fail()
    for _ in range(6):
        await patient.pass_pause()
    assert patient.health.left_out
    assert patient.pauses == [5, 10, 20, 40, LAST_PAUSE_S, LAST_PAUSE_S, LAST_PAUSE_S]
    patient.answers = True
    await patient.pass_pause()
    assert not patient.health.left_out


async def test_on_probation_one_failure_is_enough_and_the_pause_is_longer(patient):
    await patient.fail()
    await patient.pass_pause()
    await patient.fail(1)
    assert patient.health.left_out
    assert patient.pauses == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S]


async def test_an_answer_ends_the_probation(patient):
    await patient.fail()
    await patient.pass_pause()
    patient.health.answered()
    await patient.fail(MAX_FAILURES - 1)
    assert not patient.health.left_out
    await patient.fail(1)
    assert patient.pauses == [FIRST_PAUSE_S, FIRST_PAUSE_S]


async def test_an_answer_ends_the_pause(patient):
    patient.health.leave_out("it is silent")
    await asyncio.sleep(0)
    patient.health.answered()
    assert patient.changes == ["it is silent", ""]
    await patient.pass_pause()
    assert patient.num_probes == 0


async def test_nothing_is_asked_of_one_that_is_no_longer_of_interest(patient):
    await patient.fail()
    patient.health.close()
    await patient.pass_pause()
    assert patient.num_probes == 0
