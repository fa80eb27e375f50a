"""Only the answer to the present (session, epoch, round, base length) is heard."""

from dataclasses import replace

import pytest

from outrider.rpc.errors import NonFiniteLogits
from outrider.wire.generation import Failure
from outrider.wire.validator import Verdict
from outrider.wire.worker import Header, Opened, SessionError, Stale, Transfer
from services.scheduler.ports import PeerLost, StaleSession
from services.scheduler.questions import Questions

HEADER = Header(session=b"a" * 16, epoch=2, round=5, base_length=40)
VERDICT = Verdict(committed=(1,), accepted=0, raw_accepted=0, drafted=0)


@pytest.fixture
def questions():
    result = Questions(Verdict)
    result.begin()
    return result


@pytest.mark.parametrize(
    "change", [{"session": b"b" * 16}, {"epoch": 1}, {"epoch": 3}, {"round": 4}, {"base_length": 39}]
)
async def test_c55_any_other_header_is_dropped(questions, change):
    answer = questions.ask(HEADER, opens=False)
    questions.receive(replace(HEADER, **change), VERDICT)
    assert not answer.done()
    assert questions.num_dropped == 1
    questions.receive(HEADER, VERDICT)
    assert answer.result() == VERDICT


async def test_the_second_answer_is_dropped(questions):
    answer = questions.ask(HEADER, opens=False)
    questions.receive(HEADER, VERDICT)
    questions.receive(HEADER, replace(VERDICT, committed=(2,)))
    assert answer.result() == VERDICT
    assert questions.num_dropped == 1


async def test_an_event_of_another_kind_is_dropped(questions):
    questions.ask(HEADER, opens=False)
    questions.receive(HEADER, "a proposal")
    assert questions.num_dropped == 1


async def test_an_error_ends_the_session_of_its_epoch_alone(questions):
    answer = questions.ask(HEADER, opens=True)
    error = SessionError(Failure("NON_FINITE_LOGITS", "broken"))
    questions.receive(replace(HEADER, epoch=1), error)
    assert questions.num_sessions == 1
    questions.receive(HEADER, error)
    assert questions.num_sessions == 0
    with pytest.raises(NonFiniteLogits):
        await answer


async def test_the_end_of_the_stream_fails_all(questions):
    answers = [questions.ask(replace(HEADER, session=bytes([n]) * 16), opens=True) for n in range(3)]
    assert questions.num_sessions == 3
    assert questions.reset()
    assert not questions.reset()
    for answer in answers:
        with pytest.raises(PeerLost):
            await answer
    assert questions.num_sessions == 0


async def test_an_error_ends_its_own_session_and_epoch(questions):
    mine = questions.ask(HEADER, opens=False)
    other = questions.ask(replace(HEADER, session=b"b" * 16), opens=False)
    error = SessionError(Failure("NON_FINITE_LOGITS", "NaN"))
    questions.receive(replace(HEADER, epoch=1), error)
    assert not mine.done()
    questions.receive(HEADER, error)
    with pytest.raises(NonFiniteLogits, match="NaN"):
        await mine
    assert not other.done()


async def test_a_stale_of_something_older_does_not_hit_an_opening(questions):
    opening = questions.ask(HEADER, opens=True)
    questions.receive(replace(HEADER, epoch=0, base_length=0), Stale())
    assert not opening.done()
    questions.receive(replace(HEADER, epoch=2), Stale())
    with pytest.raises(StaleSession):
        await opening


async def test_credit_less_unanswered_rounds(questions):
    assert questions.room(HEADER.session) == 0
    first = questions.ask(HEADER, opens=True)
    assert questions.room(HEADER.session) == 0
    questions.receive(HEADER, Opened(credit=3))
    assert questions.room(HEADER.session) == 2
    questions.receive(HEADER, VERDICT)
    await first
    assert questions.room(HEADER.session) == 3


async def test_opening_again_drops_the_older_rounds(questions):
    older = questions.ask(HEADER, opens=False)
    newer = questions.ask(replace(HEADER, epoch=3), opens=True)
    assert older.cancelled()
    questions.receive(HEADER, VERDICT)
    assert not newer.done()


async def test_an_answer_tells_what_its_events_took_and_no_others(questions):
    answer = questions.ask(HEADER, opens=True)
    other = replace(HEADER, round=6)
    questions.ask(other, opens=False)
    questions.sent(HEADER, 100, 7000)
    questions.sent(other, 1000, 1)
    questions.sent(replace(HEADER, session=b"b" * 16), 1000, 1)
    questions.received(HEADER, 20, 300)
    questions.receive(HEADER, Opened(2))
    questions.received(HEADER, 50, 4000)
    questions.receive(HEADER, VERDICT)
    assert answer.result() == replace(VERDICT, transfer=Transfer(100, 70, 7000, 4300, 3))
