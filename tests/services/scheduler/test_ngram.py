import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.sources import Ask
from services.scheduler.sources.ngram import LONGEST, NgramIndex, NgramSource, num_common


def longest_match(tokens, shortest, longest):
    """The definition: (length, place) of the longest match of the end, the latest place among equals."""
    best = None
    for place in range(shortest, len(tokens)):
        length = 0
        while length < min(longest, place) and tokens[place - 1 - length] == tokens[-1 - length]:
            length += 1
        if length >= shortest and (best is None or length >= best[0]):
            best = (length, place)
    return best


def brute_force(tokens, shortest, longest, k):
    best = longest_match(tokens, shortest, longest)
    if best is None:
        return ()
    text = list(tokens)
    for index in range(best[1], best[1] + k):
        text.append(text[index])
    return tuple(text[len(tokens) :])


@given(
    tokens=st.lists(st.integers(0, 3), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    shortest=st.integers(1, 3),
    extra=st.integers(0, 5),
    k=st.integers(1, 9),
)
def test_equal_to_its_definition_however_the_text_grew(tokens, cuts, shortest, extra, k):
    text: list[int] = []
    index = NgramIndex(text, shortest, shortest + extra)
    for end in sorted((*cuts, len(tokens))):
        text.extend(tokens[len(text) : end])
        index.update()
    assert index.continuation(k) == brute_force(tokens, shortest, shortest + extra, k)
    best = longest_match(tokens, shortest, shortest + extra)
    assert index.match_length == (best[0] if best else 0)


@pytest.mark.parametrize(
    ("tokens", "k", "expected"),
    [
        ([], 4, ()),
        ([1], 4, ()),
        ([1, 2, 3, 4], 4, ()),
        # The longer match wins over the later one.
        ([7, 1, 2, 9, 5, 1, 2, 8, 7, 1, 2], 2, (9, 5)),
        # Of two equal ones the later.
        ([1, 2, 9, 1, 2, 8, 1, 2], 1, (8,)),
        # A loop goes on for as long as asked.
        ([1, 2, 3, 1, 2, 3], 7, (1, 2, 3, 1, 2, 3, 1)),
        ([5, 5, 5], 4, (5, 5, 5, 5)),
    ],
)
def test_examples(tokens, k, expected):
    assert NgramIndex(tokens, 2, 8).continuation(k) == expected


class _Lookup:
    """An n-gram source over a text that grows."""

    def __init__(self, bench, tokens, ngram_first=5):
        bench.validator()
        bench.settings = bench.settings.model_copy(update={"ngram_first": ngram_first})
        self.facts = bench.facts(tokens)
        self.source = NgramSource(self.facts)

    async def propose(self, k, min_confidence=0.0):
        tree = await self.source.propose(Ask(2, k, 1, min_confidence=min_confidence))
        return tree.tokens

    def commit(self, *tokens):
        self.facts.tokens.extend(tokens)
        self.source.observe(tokens)


async def test_a_long_match_leads(bench):
    lookup = _Lookup(bench, [1, 2, 3, 4, 5, 6, 9, 9, 1, 2, 3])
    assert not lookup.source.leads
    lookup.commit(4)
    assert not lookup.source.leads
    lookup.commit(5)
    assert lookup.source.leads
    assert await lookup.propose(3) == (6, 9, 9)


async def test_with_a_threshold_a_match_goes_on_for_twice_its_length(bench):
    lookup = _Lookup(bench, [1, 2, 3, 4, 5, 6, 9, 9, 1, 2])
    assert await lookup.propose(12, min_confidence=0.6) == (3, 4, 5, 6)
    assert await lookup.propose(3, min_confidence=0.6) == (3, 4, 5)
    assert len(await lookup.propose(12)) == 12


async def test_what_went_wrong_must_match_longer_to_lead_again(bench):
    """Records whose keys repeat and whose values differ: no match is worth as much as its length says."""
    key = [1, 2, 3, 4, 5]
    lookup = _Lookup(bench, [*key, 60, 61, 62, *key])
    assert lookup.source.leads
    assert await lookup.propose(3) == (60, 61, 62)
    lookup.commit(70, 71, 72, *key)
    assert not lookup.source.leads  # five were enough before
    # Half of it right: the length that is asked for falls back, step by step to the setting.
    await lookup.propose(2)
    lookup.commit(70, 99)
    lookup.commit(*key)
    assert lookup.source.leads


async def test_rounds_that_it_did_not_propose_for_change_nothing(bench):
    key = [1, 2, 3, 4, 5]
    lookup = _Lookup(bench, [*key, 60, *key])
    for value in (70, 71, 72):
        lookup.commit(value, *key)
    assert lookup.source.leads


async def test_the_length_asked_for_is_bounded(bench):
    block = list(range(1, 30))
    lookup = _Lookup(bench, [*block, *block])
    for value in range(10):
        await lookup.propose(1)
        lookup.commit(40 + value, *block)
    assert lookup.source.leads
    assert len(block) > LONGEST


@pytest.mark.parametrize(
    ("left", "right", "expected"), [((), (1,), 0), ((1, 2), (1, 3), 1), ((1,), (1, 2), 1), ((2,), (1,), 0)]
)
def test_common_ids(left, right, expected):
    assert num_common(left, right) == expected
