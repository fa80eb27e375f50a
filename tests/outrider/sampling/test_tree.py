"""The shape of a proposal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.sampling import ROOT, DraftTree, InvalidTree
from tests.outrider.sampling.reference import STEADY

CANDIDATES = st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=6)


@st.composite
def trees(draw):
    size = draw(st.integers(0, 12))
    tokens = draw(st.lists(st.integers(-2, 9), min_size=size, max_size=size))
    parents = [draw(st.integers(-1, node - 1)) for node in range(size)]
    return DraftTree(tuple(tokens), tuple(parents))


def _maximal(candidates):
    """The candidates that are no beginning of another one."""
    whole = {tuple(candidate) for candidate in candidates if candidate}
    return {one for one in whole if not any(other != one and other[: len(one)] == one for other in whole)}


@settings(**STEADY)
@given(CANDIDATES)
def test_candidates_come_back_from_the_merged_tree(candidates):
    tree = DraftTree.from_candidates(candidates)
    assert set(tree.candidates()) == _maximal(candidates)
    prefixes = {tuple(one[: i + 1]) for one in candidates for i in range(len(one))}
    assert tree.num_nodes == len(prefixes)
    assert tree.depth == max(map(len, candidates), default=0)


def test_a_shared_prefix_is_one_path():
    tree = DraftTree.from_candidates([(7, 8), (7, 9), (5,)])
    assert tree == DraftTree((7, 8, 9, 5), (-1, 0, 0, -1))
    assert tree.depths == (1, 2, 2, 1)
    assert tree.leaves == (1, 2, 3)
    assert tree.children(ROOT) == (0, 3)
    assert tree.children(0) == (1, 2)
    assert tree.child(0, 9) == 2
    assert tree.child(0, 5) is None
    assert tree.path_to(2) == (0, 2)
    assert tree.path_to(ROOT) == ()
    assert not tree.is_chain


@settings(**STEADY)
@given(st.lists(st.integers(0, 5), max_size=8))
def test_a_chain_is_one_candidate(tokens):
    tree = DraftTree.chain(tokens)
    assert tree.is_chain
    assert tree == DraftTree.from_candidates([tokens])
    assert tree.depth == tree.num_nodes == len(tokens)
    assert tree.candidates() == ((tuple(tokens),) if tokens else ())


def test_the_empty_tree_is_a_chain_of_depth_0():
    tree = DraftTree.empty()
    assert (tree.num_nodes, tree.depth, tree.is_chain, tree.candidates()) == (0, 0, True, ())


@settings(**STEADY)
@given(trees(), st.integers(-1, 6))
def test_limited_cuts_every_candidate(tree, depth):
    limited = tree.limited(depth)
    cut = {one[: max(depth, 0)] for one in tree.candidates()}
    assert limited.depth == min(tree.depth, max(depth, 0))
    assert set(limited.candidates()) == {one for one in cut if one}
    assert limited.num_nodes == sum(own <= depth for own in tree.depths)


@settings(**STEADY)
@given(trees(), st.integers(1, 9))
def test_within_drops_hostile_ids_and_what_follows_them(tree, vocab_size):
    inside = tree.within(vocab_size)
    sound = [
        node
        for node in range(tree.num_nodes)
        if all(0 <= tree.tokens[above] < vocab_size for above in tree.path_to(node))
    ]
    assert inside.num_nodes == len(sound)
    paths = [[tree.tokens[above] for above in tree.path_to(node)] for node in sound]
    assert [[inside.tokens[above] for above in inside.path_to(n)] for n in range(len(sound))] == paths


@pytest.mark.parametrize(
    ("tokens", "parents"), [((1,), ()), ((1,), (0,)), ((1, 2), (-1, 1)), ((1, 2), (-1, 5)), ((1,), (-2,))]
)
def test_a_malformed_tree_is_refused(tokens, parents):
    with pytest.raises(InvalidTree):
        DraftTree(tokens, parents)
