"""Whatever the draft does, and whatever is lost: the ids are those of plain decoding."""

import asyncio

import pytest

from outrider.rpc.errors import Internal, NoEqualReplica, ResourceExhausted
from outrider.sampling.acceptance import FinishReason
from outrider.sampling.parameters import SamplingParameters
from outrider.sampling.tree import DraftTree
from outrider.wire.draft import OpenDraft, Propose
from outrider.wire.generation import DraftSource, Failure
from outrider.wire.scheduler import Committed, Started
from outrider.wire.validator import OpenTarget, Verify
from outrider.wire.worker import Resume
from services.scheduler.control.choice import Choice
from services.scheduler.settings import SchedulerSettings
from tests.support.fake_ports import Fault
from tests.support.reference_target import ReferenceTarget, model_info
from tests.support.scripted_workers import branching, hostile, oracle, silent, wrong_at
from tests.support.waiting import until


async def test_the_oracle_is_accepted_to_the_end(bench, run):
    validator = bench.validator()
    bench.draft(oracle(bench.target))
    delivered = await run(bench.session(k=4))
    counters = delivered.finished.counters
    assert delivered.ids == bench.plain()
    assert delivered.logprobs == bench.plain_logprobs()
    assert len(set(delivered.ids)) >= 30
    # The first token came with the prompt's pass, and enters neither side.
    assert counters.committed == 59
    assert counters.rounds == 12
    assert counters.accepted == counters.drafted == 47
    assert counters.missed_proposals == 0
    assert isinstance(delivered.events[0], Started)
    assert delivered.finished.finish_reason is FinishReason.LENGTH
    assert not validator.brain.sessions


@pytest.mark.parametrize("k", [1, 2, 5, 8])
@pytest.mark.parametrize("index", [0, 1, 3, 7])
async def test_a_draft_that_is_wrong_at_one_index(bench, run, k, index):
    bench.validator()
    bench.draft(wrong_at(index, bench.target))
    delivered = await run(bench.session(k=k))
    assert delivered.ids == bench.plain()
    assert delivered.finished.counters.accepted <= delivered.finished.counters.drafted
    if index < k:
        assert delivered.finished.counters.tau <= index + 1


@pytest.mark.parametrize("policy", ["adaptive", "bandit"])
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_a_policy_chooses_the_ids_are_those_of_plain_decoding(bench, run, policy, seed):
    bench.settings = bench.settings.model_copy(update={"policy": policy})
    bench.validator()
    bench.draft(hostile(seed) if seed % 2 else wrong_at(3, bench.target))
    delivered = await run(bench.session(k=12, source=None, adapts=True))
    assert delivered.ids == bench.plain()
    assert delivered.logprobs == bench.plain_logprobs()


async def test_a_proposal_may_begin_with_a_lookup_and_go_on_with_the_model(bench, run):
    """The text repeats itself, so the index knows what comes; the model is asked to go on behind it."""
    validator = bench.validator()
    draft = bench.draft(oracle(bench.target))
    session = bench.session(k=12, source=None, adapts=True)

    class Both:
        def choose(self, view):
            if view.offers and view.draft:
                return Choice(view.offers[0].source, 2, 3)
            return Choice(num_model=3)

        def observe(self, outcome):
            assert outcome.lookup_drafted == outcome.choice.num_lookup

    session._control._policy = Both()
    delivered = await run(session)
    assert delivered.ids == bench.plain()
    prefixed = [command for _, command in draft.asked if isinstance(command, Propose) and command.prefix]
    assert prefixed
    assert all(command.k == 5 and len(command.prefix) == 2 for command in prefixed)
    by_source = {each.source: each for each in delivered.finished.counters.by_source}
    assert by_source[DraftSource.NGRAM].drafted == 2 * len(prefixed)
    counters = delivered.finished.counters
    assert sum(each.drafted for each in by_source.values()) == counters.drafted
    assert sum(each.accepted for each in by_source.values()) == counters.accepted
    assert validator.asked


@pytest.mark.parametrize("w", [1, 2, 4])
async def test_trees_equal_chains(bench, run, w):
    bench.validator()
    bench.draft(branching(bench.target))
    delivered = await run(bench.session(k=3, w=w))
    assert delivered.ids == bench.plain()
    assert delivered.finished.counters.tau > 3


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("w", [1, 3])
async def test_c43_a_hostile_draft_costs_speed_and_nothing_else(bench, run, seed, w):
    validator = bench.validator()
    bench.draft(hostile(seed))
    delivered = await run(bench.session(k=4, w=w))
    assert delivered.ids == bench.plain()
    for _, command in validator.asked:
        tree = command.tree if isinstance(command, Verify) else command.first.tree
        assert tree.depth <= 4
        assert len(tree.leaves) <= w
        assert all(0 <= token < bench.target.info.vocab_size for token in tree.tokens)


@pytest.mark.parametrize("source", [DraftSource.NONE, DraftSource.NGRAM, DraftSource.MODEL])
async def test_without_any_draft_the_session_goes_on(bench, run, source):
    bench.validator()
    delivered = await run(bench.session(source=source))
    assert delivered.ids == bench.plain()
    assert delivered.finished.draft_status == ("absent" if source is DraftSource.MODEL else "")


async def test_ngram_accelerates_text_that_repeats_itself(bench, run):
    bench.validator()
    delivered = await run(bench.session(k=4, source=DraftSource.NGRAM))
    assert delivered.ids == bench.plain()
    assert delivered.finished.counters.accepted > 5


async def test_ngram_takes_over_where_the_model_is_refused(bench, run):
    bench.validator()
    bench.workers.no_draft = "refused:tokenizers differ"
    delivered = await run(bench.session(k=4))
    counters = delivered.finished.counters
    assert delivered.ids == bench.plain()
    assert delivered.finished.draft_status == "refused:tokenizers differ"
    assert counters.accepted > 5
    assert counters.missed_proposals > 5


async def test_c27_the_seed_reaches_both_workers_unchanged(bench, run):
    validator, draft = bench.validator(), bench.draft(oracle(bench.target))
    seed = 2**64 - 1
    delivered = await run(bench.session(seed=seed, choice=3))
    again = await run(bench.session(seed=seed, choice=3))
    other = await run(bench.session(seed=seed - 1, choice=3))
    assert delivered.ids == again.ids == bench.plain(seed=seed, choice=3)
    assert other.ids != delivered.ids
    opens = [*validator.brain.opened_with(OpenTarget), *draft.brain.opened_with(OpenDraft)]
    assert {(open_.seed, open_.choice) for _, open_ in opens} == {(seed, 3), (seed - 1, 3)}


async def test_c30_the_acceptance_trace_repeats(bench, run):
    bench.validator()
    bench.draft(wrong_at(2, bench.target))

    async def trace():
        delivered = await run(bench.session(k=4))
        rounds = [len(event.tokens) for event in delivered.events if isinstance(event, Committed)]
        return rounds, delivered.finished.counters

    assert await trace() == await trace()


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5, 6, 7])
async def test_c44_depth_ends_with_the_answer(bench, run, max_tokens):
    bench.sampling = SamplingParameters(max_tokens=max_tokens)
    validator = bench.validator()
    bench.draft(oracle(bench.target))
    delivered = await run(bench.session(k=4))
    assert delivered.ids == bench.plain()
    assert len(delivered.ids) == max_tokens
    for header, command in validator.asked:
        tree = command.tree if isinstance(command, Verify) else command.first.tree
        num_output = header.base_length - 7
        assert tree.depth <= max(0, min(4, max_tokens - num_output))


@pytest.mark.parametrize("context_length", [8, 9, 10, 12, 15])
async def test_c44_depth_ends_with_the_context(bench, run, context_length):
    bench.target = ReferenceTarget(model_info(context_length=context_length))
    validator = bench.validator()
    bench.draft(oracle(bench.target))
    delivered = await run(bench.session(k=4))
    assert delivered.ids == bench.plain()
    assert len(delivered.ids) == context_length - 7
    for header, command in validator.asked:
        tree = command.tree if isinstance(command, Verify) else command.first.tree
        assert tree.depth <= max(0, min(4, context_length - header.base_length - 1))


async def test_c72_tau_counts_committed_tokens_and_raw_accepted_is_its_own(bench, run):
    plain = bench.plain()
    bench.sampling = SamplingParameters(max_tokens=60, stop_ids=(plain[3],))
    bench.validator()
    bench.draft(lambda wish: DraftTree.chain(plain[len(wish.tokens) - 7 :][: wish.k]))
    delivered = await run(bench.session(k=5))
    counters = delivered.finished.counters
    # Behind the first token one round proposes five: three are committed, the third is the end id.
    assert delivered.ids == plain[:4]
    assert delivered.finished.finish_reason is FinishReason.STOP
    assert (counters.rounds, counters.committed, counters.accepted) == (1, 3, 3)
    assert (counters.raw_accepted, counters.drafted) == (5, 5)
    assert counters.tau == 3.0


async def test_the_first_round_waits_for_no_draft(bench, run):
    validator = bench.validator()
    draft = bench.draft(oracle(bench.target), faults=lambda header, _: Fault.HELD)
    session = bench.session(k=4)
    events = session.run()
    assert isinstance(await anext(events), Started)
    assert isinstance(await anext(events), Committed)
    assert len(validator.asked) == 1
    assert validator.asked[0].event.first.tree.num_nodes == 0
    assert isinstance(draft.asked[0].event, OpenDraft)
    await events.aclose()


async def test_the_draft_is_told_exactly_what_was_committed(bench, run):
    bench.validator()
    draft = bench.draft(wrong_at(1, bench.target))
    delivered = await run(bench.session(k=3))
    told = list(draft.asked[0].event.tokens)
    for header, command in draft.asked[1:]:
        assert isinstance(command, Propose)
        told.extend(command.committed)
        assert len(told) == header.base_length
    assert told[7:] == delivered.ids[: len(told) - 7]


async def test_a_draft_on_the_same_cores_is_opened_after_the_first_token(bench, run):
    bench.settings = SchedulerSettings(draft_opens="after")
    bench.validator()
    draft = bench.draft(oracle(bench.target))
    session = bench.session(k=4, min_confidence=0.5)
    events = session.run()
    assert isinstance(await anext(events), Started)
    assert isinstance(await anext(events), Committed)
    assert not draft.asked
    # The second round's question comes with the opening, and its answer is put to the target.
    second = await anext(events)
    assert len(second.tokens) == 5
    (header, opening), *_ = draft.asked
    assert (header.round, len(opening.tokens)) == (2, 8)
    assert opening.first == Propose(committed=(), k=4, min_confidence=0.5)
    rest = [event async for event in events]
    ids = [token for event in rest if isinstance(event, Committed) for token in event.tokens]
    assert bench.plain()[6:] == ids
    assert rest[-1].counters.missed_proposals == 0
    assert rest[-1].draft_status == ""


async def test_an_opening_that_is_answered_late_is_waited_for_once(bench, run):
    bench.settings = SchedulerSettings(draft_opens="after", draft_wait_ms=10)
    bench.validator()
    draft = bench.draft(oracle(bench.target), faults=lambda header, _: Fault.HELD)
    delivered = await run(bench.session())
    assert delivered.ids == bench.plain()
    assert len(draft.asked) == 1
    assert delivered.finished.draft_status == "slow"


@pytest.mark.parametrize("opens", ["beside", "after"])
@pytest.mark.parametrize("source", [None, DraftSource.MODEL, DraftSource.NGRAM])
@pytest.mark.parametrize("min_confidence", [0.0, 0.6, 1.0])
async def test_ids_depend_on_no_policy(bench, run, opens, source, min_confidence):
    bench.settings = SchedulerSettings(draft_opens=opens)
    bench.validator()
    draft = bench.draft(wrong_at(1, bench.target))
    delivered = await run(bench.session(k=5, source=source, min_confidence=min_confidence))
    assert delivered.ids == bench.plain()
    assert delivered.logprobs == bench.plain_logprobs()
    asked = [command for _, command in draft.asked if isinstance(command, Propose)]
    assert all(command.min_confidence == min_confidence for command in asked)


class Looping(ReferenceTarget):
    """Says the same seven tokens again and again."""

    def next(self, tokens, generation):
        return 100 + (len(tokens) - generation.prompt_length) % 7


async def test_text_behind_a_long_match_needs_no_model(bench, run):
    """A loop: the model is asked until the match is long enough, and no more."""
    bench.sampling = SamplingParameters(max_tokens=60, temperature=0.0)
    bench.target = Looping()
    validator = bench.validator()
    draft = bench.draft(oracle(bench.target))
    delivered = await run(bench.session(k=4, source=None))
    assert delivered.ids == bench.plain()
    asked = [header.round for header, _ in draft.asked]
    verified = [header.round for header, _ in validator.asked]
    assert 1 in asked
    assert max(asked) < max(verified) - 4
    assert delivered.finished.counters.missed_proposals == 0
    always = await run(bench.session(k=4, source=DraftSource.MODEL))
    assert always.ids == delivered.ids
    assert max(header.round for header, _ in draft.asked) == max(verified)


# Faults of the draft.


async def test_c59_a_silent_draft_is_waited_for_within_a_bound(bench, run):
    bench.validator()
    draft = bench.draft(silent)
    delivered = await run(bench.session())
    assert delivered.ids == bench.plain()
    assert delivered.finished.draft_status == "slow"
    # The opening was never answered, so no more was asked.
    assert len(draft.asked) == 1
    assert delivered.finished.counters.missed_proposals > 5
    assert not draft.brain.sessions


async def test_c55_late_proposals_are_dropped_and_the_mirror_stays_right(bench, run):
    bench.validator()
    held = {3, 5}
    draft = bench.draft(
        oracle(bench.target), faults=lambda header, _: Fault.HELD if header.round in held else Fault.NONE
    )
    session = bench.session(k=4)
    ids = []
    async for event in session.run():
        if isinstance(event, Committed):
            ids += event.tokens
            draft.release()
    counters = session.ledger.counters()
    assert ids == bench.plain()
    assert counters.missed_proposals == 2
    assert draft.questions.num_dropped == 0
    # Late answers arrived under their own round: nothing was accepted twice, and the draft went on.
    assert counters.accepted > 30


async def test_a_draft_that_answers_under_a_wrong_header_is_not_heard(bench, run):
    bench.validator()
    draft = bench.draft(oracle(bench.target))
    honest = draft.brain.handle

    def shifted(header, command):
        events = honest(header, command)
        return [type(item)(type(header)(header.session, 9, header.round, 1), item.event) for item in events]

    draft.brain.handle = shifted
    delivered = await run(bench.session())
    assert delivered.ids == bench.plain()
    assert draft.questions.num_dropped > 0
    assert delivered.finished.draft_status == "slow"


async def test_c60_a_draft_that_lost_the_session_is_opened_again(bench, run):
    bench.validator()
    draft = bench.draft(oracle(bench.target))

    def forget_at_4(header, _):
        if header.round == 4:
            draft.brain.sessions.clear()
        return Fault.NONE

    draft.faults = forget_at_4
    delivered = await run(bench.session(k=4))
    opens = draft.brain.opened_with(OpenDraft)
    assert delivered.ids == bench.plain()
    assert [header.epoch for header, _ in opens] == [1, 2]
    assert delivered.finished.counters.accepted > 30


async def test_c59_a_draft_that_fails_twice_is_left_alone(bench, run):
    bench.validator()
    draft = bench.draft(oracle(bench.target))
    draft.brain.refusals = [Internal("no"), Internal("no"), Internal("no")]
    delivered = await run(bench.session())
    assert delivered.ids == bench.plain()
    assert len(draft.brain.opened_with(OpenDraft)) == 2
    assert delivered.finished.draft_status == "refused:no"


async def test_c61_a_draft_that_dies_is_replaced_by_another(bench, run):
    bench.validator()
    bench.draft(
        oracle(bench.target), faults=lambda header, _: Fault.KILLED if header.round == 3 else Fault.NONE
    )
    second = bench.draft(oracle(bench.target))
    delivered = await run(bench.session(k=4))
    assert delivered.ids == bench.plain()
    assert len(second.brain.opened_with(OpenDraft)) == 1
    assert delivered.finished.counters.accepted > 30


@pytest.mark.parametrize("round_", [1, 2, 5])
async def test_c61_the_only_draft_dies(bench, run, round_):
    bench.validator()
    bench.draft(
        oracle(bench.target), faults=lambda header, _: Fault.KILLED if header.round == round_ else Fault.NONE
    )
    delivered = await run(bench.session(k=4))
    assert delivered.ids == bench.plain()
    assert delivered.finished.draft_status == "absent"


# Loss of the validator.


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
@pytest.mark.parametrize("round_", [1, 2, 5])
async def test_the_same_validator_is_back(bench, run, fault, round_):
    lost = []

    def once(header, _):
        if header.round == round_ and not lost:
            lost.append(header)
            return fault
        return Fault.NONE

    validator = bench.validator(once)
    bench.draft(oracle(bench.target))
    delivered = await run(bench.session(k=4))
    assert delivered.ids == bench.plain()
    assert delivered.logprobs == bench.plain_logprobs()
    assert delivered.finished.counters.reopens == 1
    resumed = validator.brain.opened_with(Resume)
    # In the first round nothing is known to be held there.
    assert len(resumed) == (round_ > 1)
    again = [header for header, _ in validator.asked if header.round == round_]
    assert len(again) == 2
    assert again[0].base_length == again[1].base_length


@pytest.mark.parametrize("round_", [1, 2, 5])
async def test_another_validator_of_equal_bits_goes_on(bench, run, round_):
    first = bench.validator(lambda header, _: Fault.KILLED if header.round == round_ else Fault.NONE)
    other = bench.validator(numerics_id="others")
    second = bench.validator()
    bench.draft(oracle(bench.target))
    delivered = await run(bench.session(k=4))
    assert delivered.ids == bench.plain()
    assert delivered.logprobs == bench.plain_logprobs()
    counters = delivered.finished.counters
    assert counters.reopens == 1
    assert not other.asked
    opening = second.asked[0]
    assert isinstance(opening.event, OpenTarget)
    assert opening.event.prompt_length == 7
    assert opening.header.epoch == 2
    assert opening.event.numerics_id == "numerics"
    assert list(opening.event.tokens[7:]) == delivered.ids[: len(opening.event.tokens) - 7]
    # The very round that was lost is the one that is put again.
    lost = first.asked[-1]
    lost_tree = lost.event.tree if isinstance(lost.event, Verify) else lost.event.first.tree
    assert opening.event.first.tree == lost_tree
    assert opening.header.round == lost.header.round


async def test_every_round_is_lost_once(bench, run):
    seen = set()

    def first_time(header, _):
        if header.round in seen:
            return Fault.NONE
        seen.add(header.round)
        return Fault.LOST_AFTER if header.round % 2 else Fault.LOST_BEFORE

    bench.validator(first_time)
    bench.draft(wrong_at(2, bench.target))
    delivered = await run(bench.session(k=4))
    assert delivered.ids == bench.plain()
    assert delivered.finished.counters.reopens == len(seen)


async def test_without_an_equal_replica_the_session_ends_with_one_event(bench, run):
    bench.validator(lambda header, _: Fault.KILLED if header.round == 3 else Fault.NONE)
    bench.validator(numerics_id="others")
    delivered = await run(bench.session(k=0))
    assert isinstance(delivered.events[-1], Failure)
    assert delivered.events[-1].reason == "NO_EQUAL_REPLICA"
    assert delivered.events[-1].retryable
    assert delivered.ids == bench.plain()[:2]


async def test_in_the_first_round_that_is_a_status(bench, run):
    bench.validator(lambda *_: Fault.KILLED)
    with pytest.raises(NoEqualReplica):
        await run(bench.session())


async def test_failover_any_goes_on_and_says_so(bench, run):
    bench.settings = SchedulerSettings(reopen_deadline_s=0.05, failover="any")
    bench.validator(lambda header, _: Fault.KILLED if header.round == 3 else Fault.NONE)
    bench.validator(numerics_id="others")
    delivered = await run(bench.session())
    assert delivered.ids == bench.plain()
    assert delivered.finished.changed_replica
    assert delivered.finished.numerics_id == "others"


async def test_a_validator_that_comes_up_within_the_deadline(bench, run):
    bench.settings = SchedulerSettings(reopen_deadline_s=30)
    bench.validator(lambda header, _: Fault.KILLED if header.round == 3 else Fault.NONE)
    session = bench.session()
    task = asyncio.create_task(run(session))
    await until(lambda: session.ledger.counters().rounds)
    late = bench.validator()
    bench.workers.all_validators.remove(late)
    await asyncio.sleep(0.02)
    bench.workers.add(late)
    delivered = await task
    assert delivered.ids == bench.plain()
    assert late.asked


async def test_a_validator_under_which_a_round_dies_again_and_again(bench, run):
    bench.validator(lambda header, _: Fault.LOST_BEFORE if header.round == 3 else Fault.NONE)
    delivered = await run(bench.session(k=0))
    assert isinstance(delivered.events[-1], Failure)
    assert delivered.events[-1].reason == "NO_EQUAL_REPLICA"


async def test_c57_a_validator_that_forgot_the_session_gets_it_again(bench, run):
    validator = bench.validator()

    def forget(header, _):
        if header.round == 4 and len(validator.asked) == 4:
            validator.brain.sessions.clear()
        return Fault.NONE

    validator.faults = forget
    bench.draft(oracle(bench.target))
    delivered = await run(bench.session())
    assert delivered.ids == bench.plain()
    assert [header.epoch for header, _ in validator.brain.opened_with(OpenTarget)] == [1, 2]


async def test_c57_a_validator_at_a_higher_epoch_is_overtaken(bench, run):
    validator = bench.validator()

    def ahead(header, _):
        if header.round == 3 and len(validator.asked) == 3:
            next(iter(validator.brain.sessions.values())).epoch = 7
        return Fault.NONE

    validator.faults = ahead
    delivered = await run(bench.session())
    assert delivered.ids == bench.plain()
    assert validator.brain.opened_with(OpenTarget)[-1].header.epoch == 8


async def test_repeated_verdicts_commit_once(bench, run):
    validator = bench.validator(lambda *_: Fault.TWICE)
    bench.draft(oracle(bench.target))
    delivered = await run(bench.session())
    assert delivered.ids == bench.plain()
    # All but the last were dropped while the session ran, the last one after it.
    assert validator.questions.num_dropped >= len(validator.asked) - 1


async def test_a_full_validator_sends_the_session_to_the_next(bench, run):
    full = bench.validator()
    full.brain.refusals = [ResourceExhausted("full", retry_after_s=1)]
    second = bench.validator()
    delivered = await run(bench.session())
    assert delivered.ids == bench.plain()
    assert second.asked
    # It was never open before, and the refused opening holds nothing.
    assert delivered.finished.counters.reopens == 0
    assert full.questions.num_sessions == 0


async def test_when_all_are_full_and_stay_so_the_caller_hears_it(bench, run):
    bench.settings = SchedulerSettings(validator_wait_s=0.1)
    for _ in range(2):
        bench.validator().brain.refusals = [ResourceExhausted("full", retry_after_s=0.02)] * 1000
    with pytest.raises(ResourceExhausted) as raised:
        await run(bench.session())
    assert raised.value.retry_after_s == 0.02


async def test_when_all_are_full_a_new_session_waits_for_room(bench, run):
    for _ in range(2):
        bench.validator().brain.refusals = [ResourceExhausted("full", retry_after_s=0.01)] * 3
    delivered = await run(bench.session())
    assert delivered.ids == bench.plain()
    assert delivered.finished.counters.reopens == 0


async def test_only_so_many_wait_for_room(bench, run):
    bench.validator().brain.refusals = [ResourceExhausted("full", retry_after_s=0.01)]
    bench.waiting.max_waiting = 0
    with pytest.raises(ResourceExhausted):
        await run(bench.session())


async def test_a_draining_validator_is_left_between_two_rounds(bench, run):
    first = bench.validator()

    def drain(header, _):
        first.draining = header.round >= 3
        return Fault.NONE

    first.faults = drain
    second = bench.validator()
    delivered = await run(bench.session(k=0))
    assert delivered.ids == bench.plain()
    assert [header.round for header, _ in first.asked] == [1, 2, 3]
    assert first.closed
    assert not first.brain.sessions
    assert second.asked[0].header.round == 4


async def test_a_draining_validator_without_a_replica_is_used_to_its_end(bench, run):
    only = bench.validator()
    session = bench.session(k=0)
    only.draining = True
    delivered = await run(session)
    assert delivered.ids == bench.plain()


async def test_a_terminal_error_is_the_last_event(bench, run):
    validator = bench.validator()

    def break_at_4(header, command):
        if header.round == 4:
            raise Internal("the engine broke")
        return Fault.NONE

    validator.faults = break_at_4
    delivered = await run(bench.session(k=0))
    assert delivered.events[-1] == Failure("INTERNAL", "the engine broke")
    assert delivered.ids == bench.plain()[:3]
    assert not validator.brain.sessions


# Ends from outside.


async def test_finish_in_the_middle_of_a_round(bench):
    validator = bench.validator(lambda header, _: Fault.HELD if header.round == 4 else Fault.NONE)
    draft = bench.draft(oracle(bench.target))
    session = bench.session(k=4)
    events = session.run()
    seen = [await anext(events) for _ in range(4)]
    waiting = asyncio.ensure_future(anext(events))
    await until(lambda: len(validator.asked) == 4)
    returned = session.finish(7, FinishReason.STOP_STRING)
    # Both sides are free before anything else happens.
    assert not validator.brain.sessions
    assert not draft.brain.sessions
    finished = await waiting
    validator.release()
    assert finished == returned
    assert [event async for event in events] == []
    assert sum(len(event.tokens) for event in seen[1:]) == 11
    counters = finished.counters
    # Rounds 2 and 3 committed five each behind the first token; the cut leaves 5 and 1.
    assert (counters.rounds, counters.committed, counters.accepted) == (2, 6, 5)
    assert counters.discarded_rounds == 1
    assert finished.finish_reason is FinishReason.STOP_STRING


@pytest.mark.parametrize("num_turns", range(8))
async def test_finish_while_a_verdict_is_arriving(bench, num_turns):
    """Whatever turn of the event loop it falls in: nothing is delivered behind it."""
    validator = bench.validator(lambda header, _: Fault.HELD if header.round == 4 else Fault.NONE)
    session = bench.session(k=0)
    events = session.run()
    for _ in range(4):
        await anext(events)
    waiting = asyncio.ensure_future(anext(events))
    await until(lambda: len(validator.asked) == 4)
    validator.release()
    for _ in range(num_turns):
        await asyncio.sleep(0)
    if waiting.done():  # delivered before the end
        assert isinstance(waiting.result(), Committed)
        waiting = asyncio.ensure_future(anext(events))
    finished = session.finish(2, FinishReason.STOP_STRING)
    assert await waiting == finished
    assert finished.counters.committed == 1
    assert not validator.brain.sessions


async def test_finish_between_two_rounds_drops_nothing_in_flight(bench):
    bench.validator()
    session = bench.session(k=0)
    events = session.run()
    for _ in range(4):
        await anext(events)
    finished = session.finish(3, FinishReason.STOP_STRING)
    assert await anext(events) == finished
    assert finished.counters.committed == 2
    assert finished.counters.discarded_rounds == 0


async def test_the_next_round_is_asked_for_while_one_is_delivered(bench):
    validator = bench.validator()
    events = bench.session(k=0).run()
    assert isinstance(await anext(events), Started)
    assert isinstance(await anext(events), Committed)
    for _ in range(20):  # the caller is slow: one round ahead of it, and no more
        await asyncio.sleep(0)
    assert [header.round for header, _ in validator.asked] == [1, 2]
    await events.aclose()
    assert not validator.brain.sessions


async def test_a_round_ahead_that_fails_behind_a_finish_is_nobodys_business(bench):
    validator = bench.validator()

    def break_at_2(header, command):
        if header.round == 2:
            raise Internal("the engine broke")
        return Fault.NONE

    validator.faults = break_at_2
    session = bench.session(k=0)
    events = session.run()
    await anext(events)
    await anext(events)
    for _ in range(20):
        await asyncio.sleep(0)
    finished = session.finish(1, FinishReason.STOP_STRING)
    assert [event async for event in events] == [finished]


async def test_finish_after_the_session_ended_by_itself(bench, run):
    bench.validator()
    bench.draft(oracle(bench.target))
    session = bench.session(k=4)
    whole = (await run(session)).finished
    cut = session.finish(58, FinishReason.STOP_STRING)
    assert cut.counters.committed == whole.counters.committed - 2
    assert cut.finish_reason is FinishReason.STOP_STRING


async def test_finish_keeps_no_more_than_was_committed(bench, run):
    bench.validator()
    session = bench.session(k=0)
    await run(session)
    with pytest.raises(Exception, match="kept_length is 61, but only 60"):
        session.finish(61, FinishReason.STOP_STRING)


@pytest.mark.parametrize("held", ["validator", "draft"])
async def test_c79_cancelling_frees_both_sides_at_once(bench, held):
    def hold(header, _):
        return Fault.HELD if header.round == 3 else Fault.NONE

    validator = bench.validator(hold if held == "validator" else None)
    draft = bench.draft(oracle(bench.target), hold if held == "draft" else None)
    session = bench.session(k=4)

    async def read():
        async for _ in session.run():
            pass

    task = asyncio.create_task(read())
    holder = validator if held == "validator" else draft
    await until(lambda: any(header.round == 3 for header, _ in holder.asked))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not validator.brain.sessions
    assert not draft.brain.sessions
    validator.release()
    draft.release()


async def test_closing_the_events_frees_both_sides(bench):
    validator, draft = bench.validator(), bench.draft(oracle(bench.target))
    events = bench.session().run()
    for _ in range(3):
        await anext(events)
    await events.aclose()
    assert not validator.brain.sessions
    assert not draft.brain.sessions


async def test_a_session_of_another_scheduler_goes_on(bench, run):
    plain = bench.plain()
    bench.validator()
    bench.draft(oracle(bench.target))
    delivered = await run(bench.session(output_so_far=tuple(plain[:20]), numerics_id="numerics"))
    assert delivered.ids == plain[20:]
    assert delivered.finished.counters.committed == 39
    assert not delivered.finished.changed_replica
