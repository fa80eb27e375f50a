"""The two sources that live on the shared store: what they propose, and what they leave there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.store import Candidate, Namespace, Store
from outrider.store.memory import MemoryBackend
from outrider.wire.generation import DraftSource
from services.scheduler.sources import Ask
from services.scheduler.sources.candidate import LONGEST, CandidateSource, OldAnswer
from services.scheduler.sources.ngram import NgramSource
from services.scheduler.sources.pattern import PatternSource

CANDIDATE, PATTERN = DraftSource.CANDIDATE_CACHE, DraftSource.PATTERN_CACHE


@pytest.fixture
def stored(bench):
    bench.validator()
    bench.store = Store(MemoryBackend())
    return bench


async def test_a_repeated_prompt_is_drafted_from_its_answer(stored, run):
    first = await run(stored.session(k=8, source=CANDIDATE))
    assert first.finished.counters.drafted == 0
    await stored.store.flush()
    again = await run(stored.session(k=8, source=CANDIDATE))
    assert again.ids == first.ids == stored.plain()
    counters = again.finished.counters
    assert counters.accepted == counters.drafted > 40
    assert {each.source for each in counters.by_source} == {CANDIDATE}


async def test_patterns_of_one_session_help_the_next(stored, run):
    plain = await run(stored.session(k=4, source=PATTERN))
    await stored.store.flush()
    again = await run(stored.session(k=4, source=PATTERN))
    assert again.ids == plain.ids == stored.plain()
    assert again.finished.counters.accepted > plain.finished.counters.accepted
    assert again.finished.counters.tau > 3


@pytest.mark.parametrize("source", [CANDIDATE, PATTERN])
async def test_c69_one_tenants_answers_are_not_anothers_drafts(stored, run, source):
    stored.tenant = "one"
    await run(stored.session(k=4, source=source))
    await stored.store.flush()
    stored.tenant = "another"
    other = await run(stored.session(k=4, source=source))
    assert other.ids == stored.plain()
    # A text that repeats itself teaches its own session's patterns within it; an answer comes from another.
    if source is CANDIDATE:
        assert other.finished.counters.drafted == 0


async def test_without_store_nothing_is_read_or_left(stored, run):
    await run(stored.session(k=4, source=CANDIDATE, store=False))
    await stored.store.flush()
    assert stored.store._access.backend.num_entries == 0
    await run(stored.session(k=4, source=CANDIDATE))
    await stored.store.flush()
    assert stored.store._access.backend.num_entries > 0
    silent = await run(stored.session(k=4, source=CANDIDATE, store=False))
    assert silent.finished.counters.drafted == 0


async def test_c68_a_sessions_own_index_begins_empty_and_is_no_part_of_the_store(stored, run):
    await run(stored.session(k=4, source=DraftSource.NGRAM))
    await stored.store.flush()
    assert stored.store._access.backend.num_entries == 0
    fresh = NgramSource(stored.facts([900, 901]))
    assert fresh.match_length == 0
    assert not (await fresh.propose(Ask(2, 4, 1))).num_nodes


@pytest.mark.parametrize(
    "answer",
    [
        [2**31 - 1] * 50,
        [0] * 5000,
        list(range(5000)),
        [10**6, 5, 6],
    ],
)
@pytest.mark.parametrize("source", [CANDIDATE, PATTERN, None])
async def test_hostile_entries_change_nothing_but_speed(stored, run, answer, source):
    namespace = Namespace("tokenizer", "model")
    prompt = stored.request().prompt
    stored.store.candidates.remember(namespace, prompt, answer)
    stored.store.patterns.learn(namespace, [*prompt, *answer[:400]], 2, 300)
    await stored.store.flush()
    delivered = await run(stored.session(k=8, source=source, adapts=source is None))
    assert delivered.ids == stored.plain()
    for port in stored.workers.all_validators:
        for _, command in port.asked:
            tree = command.tree if hasattr(command, "tree") else command.first.tree
            assert all(0 <= token < stored.target.info.vocab_size for token in tree.tokens)
            assert tree.depth <= 8


def test_an_old_answer_is_found_again_behind_a_change():
    old = OldAnswer(Candidate((1, 2, 3, 4, 5, 6, 7, 8), exact=True), 100)
    assert old.next_tokens(3) == (1, 2, 3)
    old.follow((1, 2))
    assert old.next_tokens(2) == (3, 4)
    old.follow((9,))
    assert old.next_tokens(2) == ()
    assert old.match_length == 0
    old.follow((4, 5, 6))
    assert old.next_tokens(4) == (7, 8)
    assert old.match_length == 3


def test_of_several_places_the_one_that_agrees_longest_is_taken():
    old = OldAnswer(Candidate((1, 2, 3, 7, 9, 1, 2, 3, 8), exact=False), 100)
    old.follow((50,))
    old.follow((9, 1, 2, 3))
    assert old.next_tokens(1) == (8,)


ids = st.lists(st.integers(0, 4), max_size=40)


@given(ids, st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), max_size=12), st.booleans())
def test_whatever_follows_a_place_is_one_of_the_old_answers(answer, rounds, exact):
    old = OldAnswer(Candidate(tuple(answer), exact=exact), 5)
    for committed in rounds:
        old.follow(committed)
        following = old.next_tokens(6)
        text = ",".join(map(str, answer))
        assert ",".join(map(str, following)) in text
        assert 0 <= old.match_length <= LONGEST


async def test_sources_without_a_store_are_refused(bench):
    bench.validator()
    for make in (CandidateSource, PatternSource):
        with pytest.raises(RuntimeError, match="no store"):
            make(bench.facts([1, 2, 3]))
