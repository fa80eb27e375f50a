"""What one stream carries for many sessions."""

import asyncio

from outrider.sampling.parameters import SamplingParameters
from outrider.sampling.tree import DraftTree
from outrider.wire.validator import OpenTarget, Verify
from outrider.wire.worker import Header
from services.scheduler.fleet import Fleet
from services.scheduler.link import MAX_COMMANDS
from services.scheduler.settings import SchedulerSettings
from tests.support.scripted_workers import scripted_validator, serving

PROMPT = (5, 6, 7)
NUM_SESSIONS = 2 * MAX_COMMANDS


async def test_sessions_that_are_ready_together_share_messages():
    worker = scripted_validator()
    async with (
        serving(worker) as address,
        Fleet(SchedulerSettings(validators=(address,), drafts=())) as fleet,
    ):
        while not (ports := fleet.validators()):
            await fleet.changed()
        sessions = [number.to_bytes(16, "big") for number in range(NUM_SESSIONS)]
        before = worker.num_messages
        opening = OpenTarget(PROMPT, len(PROMPT), SamplingParameters(), 7, first=Verify(DraftTree.empty()))
        await asyncio.gather(*(ports[0].ask(Header(each, 1, 1, len(PROMPT)), opening) for each in sessions))
        assert worker.num_messages - before == NUM_SESSIONS / MAX_COMMANDS
        before = worker.num_messages
        headers = [Header(each, 1, 2, len(PROMPT) + 1) for each in sessions]
        verdicts = await asyncio.gather(
            *(ports[0].ask(header, Verify(DraftTree.chain((9, 9)))) for header in headers)
        )
        assert worker.num_messages - before == NUM_SESSIONS / MAX_COMMANDS
        assert all(verdict.committed for verdict in verdicts)
