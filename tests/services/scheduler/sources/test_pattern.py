"""A source that knows what other sessions have committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.store import Continuation, Namespace, open_store
from outrider.store.backend import Count
from outrider.store.patterns import _key
from services.scheduler.sources import Ask
from services.scheduler.sources.pattern import PatternSource

HERE = Namespace("tokenizer", "model", tenant="here")


@pytest.fixture
def store():
    return open_store("")


@pytest.fixture
def facts(bench, store):
    bench.validator()
    return lambda *tokens: replace(bench.facts(list(tokens)), store=store, namespace=HERE)


async def proposed(source, k=4):
    return (await source.propose(Ask(1, k, 1))).tokens


async def taught(facts, store, prompt, output):
    """A session that commits an output two tokens at a time."""
    known = facts(*prompt)
    source = PatternSource(known)
    for start in range(0, len(output), 2):
        known.tokens.extend(output[start : start + 2])
        source.observe(output[start : start + 2])
    source.close()
    await store.flush()


async def test_what_one_session_committed_another_one_proposes(facts, store):
    output = list(range(10, 50))
    await taught(facts, store, [1, 2, 3], output)
    source = PatternSource(facts(7, 8, 20, 21, 22))
    assert await proposed(source) == (23, 24, 25, 26)
    assert source.match_length == 3
    assert await proposed(PatternSource(facts(7, 8, 48, 49))) == ()


async def test_each_position_is_taught_once(facts, store):
    await taught(facts, store, [1, 2, 3], list(range(10, 50)))
    for at in range(12, 50):
        (counts,) = await store._access.backend.counts([_key(HERE, [at - 2, at - 1])])
        assert list(counts.values()) == [1], at


async def test_a_prompt_is_not_learnt(facts, store):
    await taught(facts, store, [1, 2, 3, 4, 5, 6], [50, 51, 52])
    assert await store.patterns.lookup(HERE, [1, 2], 4) == Continuation()
    # But what followed it is, and only in this namespace.
    assert (await store.patterns.lookup(HERE, [5, 6], 4)).tokens == (50, 51, 52)
    other = replace(HERE, tenant="there")
    assert await store.patterns.lookup(other, [5, 6], 4) == Continuation()


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ((3, 64_000_000, 4), (3,)),
        ((64_000_000, 3), ()),
        ((3,) * 400, ()),
        ((3,) * 16, (3,) * 9),
    ],
)
async def test_a_hostile_pattern_proposes_only_ids_that_there_are(facts, store, field, expected):
    packed = b"".join(each.to_bytes(4, "little") for each in field)
    await store._access.backend.apply([Count(_key(HERE, [1, 2]), packed, 2**40, 60)])
    source = PatternSource(facts(1, 2))
    assert await proposed(source, 9) == expected
    assert source.match_length == (2 if expected else 0)
