"""A source that follows an old answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.store import Candidate, Namespace, open_store
from outrider.store.backend import Put
from outrider.store.candidates import MAX_ANSWER, _answer_key, _digest
from services.scheduler.sources import Ask
from services.scheduler.sources.candidate import ALIKE_LENGTH, LONGEST, CandidateSource, OldAnswer
from tests.services.scheduler.conftest import PROMPT

HERE = Namespace("tokenizer", "model", tenant="here")
ANSWER = (11, 12, 13, 14, 15, 16, 17, 18, 19, 20)


@pytest.fixture
def store():
    return open_store("")


@pytest.fixture
def facts(bench, store):
    bench.validator()
    return replace(bench.facts(list(PROMPT)), store=store, namespace=HERE)


async def proposed(source, k=4):
    return (await source.propose(Ask(1, k, 1))).tokens


def commit(facts, source, *tokens):
    facts.tokens.extend(tokens)
    source.observe(tokens)


async def test_it_proposes_the_answer_that_the_prompt_was_given(facts, store):
    store.candidates.remember(HERE, PROMPT, ANSWER)
    await store.flush()
    source = CandidateSource(facts)
    assert await proposed(source) == ANSWER[:4]
    assert source.match_length == LONGEST
    commit(facts, source, 11, 12, 13)
    assert await proposed(source, 3) == (14, 15, 16)
    commit(facts, source, *ANSWER[3:])
    assert await proposed(source) == ()


async def test_it_finds_its_place_again_behind_a_change(facts, store):
    store.candidates.remember(HERE, PROMPT, ANSWER)
    await store.flush()
    source = CandidateSource(facts)
    assert await proposed(source) == ANSWER[:4]
    commit(facts, source, 11, 99)
    assert await proposed(source) == ()
    assert source.match_length == 0
    commit(facts, source, 13, 14, 15)
    assert await proposed(source) == (16, 17, 18, 19)
    assert source.match_length == 3


async def test_it_finds_its_place_in_what_another_scheduler_delivered(bench, facts, store):
    store.candidates.remember(HERE, PROMPT, ANSWER)
    await store.flush()
    facts = replace(facts, tokens=[*PROMPT, *ANSWER[:5]])
    assert await proposed(CandidateSource(facts), 2) == (16, 17)


async def test_a_finished_answer_is_there_for_the_next_session(facts, store):
    source = CandidateSource(facts)
    assert await proposed(source) == ()
    commit(facts, source, *ANSWER)
    source.close()
    await store.flush()
    assert await store.candidates.find(HERE, PROMPT) is None  # it had not come to its end
    source.finished(len(ANSWER))
    await store.flush()
    assert await store.candidates.find(HERE, PROMPT) == Candidate(ANSWER, exact=True)
    source.finished(5)  # a stop string ended it there
    await store.flush()
    assert await store.candidates.find(HERE, PROMPT) == Candidate(ANSWER[:5], exact=True)


async def test_closed_before_its_lookup_it_leaves_nothing_behind(facts):
    source = CandidateSource(facts)
    finding = source._finding
    source.close()
    source.close()
    with pytest.raises(BaseException) as ended:
        await finding
    assert type(ended.value).__name__ == "CancelledError"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ((1, 2, 64_000_000, 3), (1, 2)),
        ((2**31 - 1,) * 8, ()),
        ((0,) * MAX_ANSWER, (0,) * 16),
    ],
)
async def test_a_hostile_answer_proposes_only_ids_that_there_are(facts, store, stored, expected):
    value = b"\x01" + b"".join(each.to_bytes(4, "little") for each in stored)
    await store._access.backend.apply([Put(_answer_key(HERE, _digest(PROMPT)), value, 60)])
    assert await proposed(CandidateSource(facts), 16) == expected


async def test_an_answer_beyond_the_bound_is_none(facts, store):
    value = b"\x01" + bytes(4 * (MAX_ANSWER + 1))
    await store._access.backend.apply([Put(_answer_key(HERE, _digest(PROMPT)), value, 60)])
    assert await proposed(CandidateSource(facts)) == ()


def test_an_answer_to_a_prompt_much_like_it_counts_for_less():
    assert OldAnswer(Candidate(ANSWER, exact=False), 100).match_length == ALIKE_LENGTH < LONGEST


def test_of_equal_places_the_nearest_wins():
    run = (1, 2, 3)
    old = OldAnswer(Candidate((*run, 7, *range(20, 30), *run, 8, *range(30, 40), *run, 9), exact=True), 100)
    old.follow((*range(50, 64), *run))
    assert old.next_tokens(1) == (8,)


def test_the_longest_agreement_wins_over_the_nearest():
    old = OldAnswer(Candidate((4, 1, 2, 3, 7, 5, 5, 5, 1, 2, 3, 8), exact=True), 100)
    old.follow((60, 61, 62, 63, 64, 65, 4, 1, 2, 3))
    assert old.next_tokens(1) == (7,)


@given(
    answer=st.lists(st.integers(-2, 6), max_size=80),
    new=st.lists(st.lists(st.integers(0, 4), max_size=6), max_size=12),
    exact=st.booleans(),
    k=st.integers(1, 9),
)
def test_whatever_it_follows_it_proposes_what_stands_in_the_answer(answer, new, exact, k):
    old = OldAnswer(Candidate(tuple(answer), exact=exact), 5)
    text: list[int] = []
    for committed in new:
        old.follow(committed)
        text += committed
        tokens = old.next_tokens(k)
        assert all(0 <= token < 5 for token in tokens)
        assert len(tokens) <= k
        if tokens:
            joined = (*text[len(text) - old.match_length :], *tokens) if len(text) >= 3 else tokens
            assert any(tuple(answer[at : at + len(tokens)]) == tokens for at in range(len(answer)))
            if old.match_length <= len(text) and not exact and old.match_length != ALIKE_LENGTH:
                # What it says of the agreement is so.
                assert any(tuple(answer[at : at + len(joined)]) == joined for at in range(len(answer)))
