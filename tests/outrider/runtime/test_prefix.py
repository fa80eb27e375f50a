"""Names of pages, and the index by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.runtime.prefix import PrefixIndex, chained, scope_of

texts = st.text(max_size=6)


@given(left=st.tuples(texts, texts), right=st.tuples(texts, texts))
def test_c69_each_tenant_and_salt_has_a_scope_of_its_own(
    left: tuple[str, str], right: tuple[str, str]
) -> None:
    assert (scope_of(*left) == scope_of(*right)) == (left == right)


def test_scopes_do_not_run_together() -> None:
    assert len({scope_of("ab", "c"), scope_of("a", "bc"), scope_of("abc", ""), scope_of("", "abc")}) == 4


@given(
    chains=st.lists(
        st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), max_size=4), min_size=2, max_size=6
    )
)
def test_a_name_stands_for_the_page_and_all_before_it(chains: list[list[list[int]]]) -> None:
    names: dict[bytes, list[list[int]]] = {}
    for chain in chains:
        name = scope_of("tenant", "")
        for length, ids in enumerate(chain, start=1):
            name = chained(name, ids)
            assert names.setdefault(name, chain[:length]) == chain[:length]


def test_pages_are_found_until_they_are_forgotten() -> None:
    index = PrefixIndex()
    scope = scope_of("", "")
    name = index.add(scope, [5, 6], 3)
    assert index.find(name, scope, [5, 6]) == 3
    assert 3 in index
    # A second page of that content is not needed.
    assert index.add(scope, [5, 6], 4) == name
    assert 4 not in index
    index.forget(4)
    index.forget(3)
    assert index.find(name, scope, [5, 6]) is None
    assert (3 in index, len(index)) == (False, 0)


@pytest.mark.parametrize(("parent", "ids"), [(b"other", [5, 6]), (b"scope", [5, 7])])
def test_an_equal_hash_is_not_taken_for_an_equal_content(parent: bytes, ids: list[int]) -> None:
    index = PrefixIndex()
    name = index.add(b"scope", [5, 6], 3)
    assert index.find(name, b"scope", [5, 6]) == 3
    assert index.find(name, parent, ids) is None
