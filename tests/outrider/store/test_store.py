"""What is learnt is found again, by whom it belongs to and by nobody else."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.store import BadStoreUrl, Candidate, Continuation, Namespace, check_url, open_store
from outrider.store.backend import MAX_FIELDS, Count, Drop, Put
from outrider.store.candidates import _answer_key, _digest
from outrider.store.memory import ENTRY_BYTES, FIELD_BYTES, MemoryBackend
from outrider.store.patterns import MAX_CONTINUATIONS, _key
from tests.outrider.store.conftest import HERE


async def test_what_followed_is_found_by_its_longest_context(store):
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    store.patterns.learn(HERE, text, 0, len(text))
    await store.flush()
    assert await store.patterns.lookup(HERE, [1, 2, 3, 4], 3) == Continuation((5, 6, 7), 4)
    assert await store.patterns.lookup(HERE, [99, 3, 4], 2) == Continuation((5, 6), 2)
    assert await store.patterns.lookup(HERE, list(range(1, 11)), 9) == Continuation((11, 12), 8)
    assert await store.patterns.lookup(HERE, [4, 99], 3) == Continuation()
    assert await store.patterns.lookup(HERE, [4], 3) == Continuation()


async def test_the_more_frequent_continuation_wins(store):
    for last in (7, 7, 8):
        store.patterns.learn(HERE, [1, 2, last, last, last], 2, 3)
    await store.flush()
    assert (await store.patterns.lookup(HERE, [1, 2], 4)).tokens == (7, 7, 7)


async def test_a_continuation_ends_where_opinions_differ(store):
    for last in range(10):
        store.patterns.learn(HERE, [1, 2, 3, 4, 100 + last], 2, 3)
    await store.flush()
    assert (await store.patterns.lookup(HERE, [1, 2], 8)).tokens == (3, 4)


async def test_contexts_that_go_on_in_too_many_ways_are_cut_back(store):
    for last in range(MAX_CONTINUATIONS * 2):
        for _ in range(3 if last == 5 else 1):
            store.patterns.learn(HERE, [1, 2, 100 + last], 2, 3)
    await store.flush()
    await store.patterns.lookup(HERE, [1, 2], 1)
    await store.flush()
    (counts,) = await store._access.backend.counts([_key(HERE, [1, 2])])
    assert len(counts) == MAX_CONTINUATIONS // 2
    assert max(counts.values()) == 3


async def test_c69_c71_a_namespace_is_one_tenants_one_models_one_adapters(store):
    store.patterns.learn(HERE, [1, 2, 3, 4], 2, 4)
    store.candidates.remember(HERE, [5] * 20, [6] * 20)
    await store.flush()
    for other in (
        Namespace("tokenizer", "model", tenant="there"),
        Namespace("tokenizer", "model", tenant=""),
        Namespace("other", "model", tenant="here"),
        Namespace("tokenizer", "other", tenant="here"),
        Namespace("tokenizer", "model", adapter="other", tenant="here"),
        Namespace("tokenizer", "model", tenant="here", salt="other"),
    ):
        assert other.prefix != HERE.prefix
        assert await store.patterns.lookup(other, [1, 2], 2) == Continuation()
        assert await store.candidates.find(other, [5] * 20) is None
    assert await store.patterns.lookup(HERE, [1, 2], 2) == Continuation((3, 4), 2)


def test_a_key_holds_no_tenants_name():
    assert "somebody@example.org" not in Namespace("t", "m", tenant="somebody@example.org").prefix


async def test_an_answer_is_found_by_its_prompt(store):
    prompt, answer = list(range(100, 160)), list(range(40))
    store.candidates.remember(HERE, prompt, answer)
    await store.flush()
    assert await store.candidates.find(HERE, prompt) == Candidate(tuple(answer), exact=True)
    assert await store.candidates.find(HERE, [7] * 60) is None


async def test_a_prompt_with_five_lines_changed_is_alike(store):
    draw = random.Random(5)
    prompt = [draw.randrange(30_000) for _ in range(2000)]
    store.candidates.remember(HERE, prompt, list(range(50)))
    await store.flush()
    edited = list(prompt)
    for line in range(5):
        edited[300 * line + 7 : 300 * line + 17] = [draw.randrange(30_000) for _ in range(11)]
    found = await store.candidates.find(HERE, edited)
    assert found == Candidate(tuple(range(50)), exact=False)
    stranger = [draw.randrange(30_000) for _ in range(2000)]
    assert await store.candidates.find(HERE, stranger) is None


async def test_a_long_common_beginning_is_alike(store):
    draw = random.Random(6)
    prompt = [draw.randrange(30_000) for _ in range(800)]
    store.candidates.remember(HERE, prompt, list(range(50)))
    await store.flush()
    longer = prompt[:600] + [draw.randrange(30_000) for _ in range(200)]
    assert await store.candidates.find(HERE, longer) is not None


async def test_a_newer_answer_replaces_the_older(store):
    store.candidates.remember(HERE, [1] * 10, [2] * 10)
    store.candidates.remember(HERE, [1] * 10, [3] * 10)
    await store.flush()
    assert (await store.candidates.find(HERE, [1] * 10)).answer == (3,) * 10


async def test_very_short_answers_are_not_kept(store):
    store.candidates.remember(HERE, [1] * 10, [2])
    await store.flush()
    assert await store.candidates.find(HERE, [1] * 10) is None


async def test_control_state_comes_back(store):
    assert await store.control.load("target") is None
    store.control.save("target", b"{}")
    await store.flush()
    assert await store.control.load("target") == b"{}"
    assert await store.control.load("other") is None


async def test_a_purge_forgets_one_tenant(store):
    other = Namespace("tokenizer", "model", tenant="other")
    for namespace in (HERE, other):
        store.patterns.learn(namespace, [1, 2, 3, 4], 2, 4)
        store.candidates.remember(namespace, [5] * 20, [6] * 20)
    await store.flush()
    store.patterns.learn(HERE, [7, 8, 9], 2, 3)  # waits to be written still
    assert await store.purge("here") > 3
    await store.flush()
    assert await store.patterns.lookup(HERE, [1, 2], 2) == Continuation()
    assert await store.patterns.lookup(HERE, [7, 8], 2) == Continuation()
    assert await store.candidates.find(HERE, [5] * 20) is None
    assert await store.patterns.lookup(other, [1, 2], 2) == Continuation((3, 4), 2)
    assert await store.purge("here") == 0


@pytest.mark.parametrize(
    "garbage", [b"", b"\x01", b"\x01abc", b"\x02abcd", b"\x01" + b"\xff" * 8, b"x" * 100_000]
)
async def test_garbage_reads_as_absent(store, garbage):
    """Somebody else writes into our keys."""
    prompt = [5] * 20
    await store._access.backend.apply(
        [
            Put(_answer_key(HERE, _digest(prompt)), garbage, 60),
            # A value where counts are expected, and the other way round.
            Put(_key(HERE, [1, 2]), garbage, 60),
            Count(_key(HERE, [3, 4]), garbage, 1, 60),
            Count(_answer_key(HERE, _digest([6] * 20)), b"field", 1, 60),
        ]
    )
    assert await store.candidates.find(HERE, prompt) is None
    assert await store.candidates.find(HERE, [6] * 20) is None
    assert await store.patterns.lookup(HERE, [1, 2], 4) == Continuation()
    # Four bytes are an id, whoever wrote them; whether the model has it is for its reader to see.
    assert len((await store.patterns.lookup(HERE, [3, 4], 4)).tokens) == (len(garbage) == 4)
    # It can still be written around.
    store.patterns.learn(HERE, [1, 2, 3, 8, 9], 3, 4)
    await store.flush()
    assert (await store.patterns.lookup(HERE, [1, 2, 3], 4)).match_length == 3
    assert store.state.healthy


async def test_lookups_are_counted(store):
    store.patterns.learn(HERE, [1, 2, 3], 2, 3)
    await store.flush()
    await store.patterns.lookup(HERE, [1, 2], 1)
    await store.patterns.lookup(HERE, [8, 9], 1)
    assert (store.state.num_hits, store.state.num_misses) == (1, 1)


async def test_what_is_old_is_forgotten():
    now = [0.0]
    place = MemoryBackend(clock=lambda: now[0])
    await place.apply([Put("outrider:1:t:k", b"v", 10), Count("outrider:1:t:c", b"f", 2, 10)])
    now[0] = 9.0
    assert await place.values(["outrider:1:t:k"]) == [b"v"]
    now[0] = 11.0
    assert await place.values(["outrider:1:t:k"]) == [None]
    assert await place.counts(["outrider:1:t:c"]) == [{}]
    assert place.num_entries == 0


ROOM = 100 * (ENTRY_BYTES + 1)


async def test_memory_is_bounded_and_keeps_what_is_read():
    place, dear = MemoryBackend(max_bytes=ROOM), f"{HERE.prefix}:dear"
    await place.apply([Put(dear, b"v", 60)])
    for number in range(1000):
        await place.values([dear])
        await place.apply([Put(f"{HERE.prefix}:{number}", b"v", 60)])
    assert place.num_entries == 100
    assert await place.values([dear]) == [b"v"]


@given(
    st.lists(
        st.one_of(
            st.builds(Put, st.sampled_from("abcdef"), st.binary(max_size=2000), st.just(60)),
            st.builds(Count, st.sampled_from("abcdef"), st.binary(max_size=9), st.just(1), st.just(60)),
            st.builds(Drop, st.sampled_from("abcdef"), st.tuples(st.binary(max_size=1))),
        ),
        max_size=60,
    )
)
def test_memory_keeps_its_books(writes):
    asyncio.run(_keeps_its_books(writes))


async def _keeps_its_books(writes):
    place = MemoryBackend(max_bytes=4000)
    for write in writes:
        await place.apply([write])
        entries = [entry for share in place._shares.values() for entry in share.entries.values()]
        assert place.num_bytes == sum(entry.num_bytes for entry in entries) <= 4000
        for entry in entries:
            values = (
                [FIELD_BYTES + len(each) for each in entry.value]
                if isinstance(entry.value, dict)
                else [len(entry.value)]
            )
            assert entry.num_bytes == ENTRY_BYTES + sum(values)


async def test_a_key_has_so_many_fields_and_keeps_the_most_frequent():
    place = MemoryBackend()
    await place.apply([Count("key", b"dear", 5, 60)])
    await place.apply([Count("key", bytes([number]), 1, 60) for number in range(200)])
    (counts,) = await place.counts(["key"])
    assert len(counts) == MAX_FIELDS
    assert counts[b"dear"] == 5


async def test_c70_a_tenants_traffic_displaces_its_own_entries():
    place = MemoryBackend(max_bytes=ROOM)
    quiet = [f"{Namespace('t', 'm', tenant='quiet').prefix}:p:{number}" for number in range(30)]
    await place.apply([Put(key, b"v", 60) for key in quiet])
    loud = Namespace("t", "m", tenant="loud").prefix
    for number in range(5000):
        await place.apply([Put(f"{loud}:p:{number}", b"v", 60)])
    assert await place.values(quiet) == [b"v"] * 30
    assert place.num_entries == 100
    # And who comes late finds room.
    late = [f"{Namespace('t', 'm', tenant='late').prefix}:p:{number}" for number in range(20)]
    await place.apply([Put(key, b"v", 60) for key in late])
    assert await place.values([*late, *quiet]) == [b"v"] * 50


@pytest.mark.parametrize(
    "url", ["http://host", "redis://", "redis://host:port", "host:6379", "redis://u:geheim@:1:2"]
)
def test_a_url_that_is_none_is_refused_without_its_password(url):
    with pytest.raises(BadStoreUrl, match="no URL of Redis") as refused:
        open_store(url)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "query", ["nothing=geheim", "socket_timeout=geheim", "ssl_cert_reqs=geheim", "password=geheim&nothing=1"]
)
def test_an_option_that_there_is_not_is_refused_before_it_is_needed(query):
    with pytest.raises(BadStoreUrl, match="no URL of Redis") as refused:
        check_url(f"rediss://user:geheim@host/0?{query}")
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("url", ["", "memory://"])
async def test_no_server_is_this_process(url):
    async with open_store(url) as store:
        assert store.state.kind == "memory"
