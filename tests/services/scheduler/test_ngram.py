import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.sources import Ask
from services.scheduler.sources.ngram import NgramIndex, NgramSource


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


async def test_it_says_how_long_its_match_is(bench):
    bench.validator()
    facts = bench.facts([1, 2, 3, 4, 5, 6, 9, 9, 1, 2, 3])
    source = NgramSource(facts)
    assert source.match_length == 3
    facts.tokens.append(4)
    source.observe((4,))
    assert source.match_length == 4
    assert (await source.propose(Ask(2, 3, 1))).tokens == (5, 6, 9)
    facts.tokens.append(99)
    source.observe((99,))
    assert source.match_length == 0
    assert not (await source.propose(Ask(3, 3, 1))).num_nodes
