"""The page pool loses no page, gives none to two owners, and keeps what may be wanted again while it can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.runtime.errors import OutOfPages
from outrider.runtime.pages import PagePool

SCOPE = b"scope"


def ids_of(page: int) -> list[int]:
    return [page] * 64


@given(
    num_pages=st.integers(1, 40),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=60),
)
def test_no_page_has_two_holders_and_none_is_lost(num_pages: int, steps: list[tuple[bool, int]]) -> None:
    pool = PagePool(num_pages)
    held: list[list[int]] = []
    for give_back, count in steps:
        if give_back and held:
            pool.free(held.pop(count % len(held)))
        elif pool.can_allocate(count):
            behind = held[-1][-1] if held else None
            held.append(pool.allocate(count, behind))
        else:
            with pytest.raises(OutOfPages, match=f"{count} KV pages"):
                pool.allocate(count)
        pages = [page for pages in held for page in pages]
        assert len(pages) == len(set(pages))
        assert all(0 <= page < num_pages for page in pages)
        assert pool.num_free == num_pages - len(pages)


@given(
    num_pages=st.integers(1, 24),
    steps=st.lists(
        st.tuples(st.sampled_from(["take", "give back", "name", "join"]), st.integers(0, 99)), max_size=80
    ),
)
def test_pages_with_several_holders_and_kept_ones_are_counted_right(
    num_pages: int, steps: list[tuple[str, int]]
) -> None:
    pool = PagePool(num_pages)
    held: list[list[int]] = []
    named: set[int] = set()
    for action, number in steps:
        some = held[number % len(held)] if held else []
        match action:
            case "take" if pool.can_allocate(1 + number % 4):
                pages = pool.allocate(1 + number % 4)
                named -= set(pages)
                held.append(pages)
            case "give back" if held:
                held.remove(some)
                pool.free(some)
            case "name":
                for page in some:
                    pool.index.add(SCOPE, ids_of(page), page)
                    named.add(page)
            case "join" if some:
                pool.hold(some[:1])
                held.append(some[:1])
        users = [page for pages in held for page in pages]
        assert all(pool.num_holders(page) == users.count(page) for page in range(num_pages))
        assert pool.num_free == num_pages - len(set(users))
        kept = {page for page in range(num_pages) if page in pool.index and page not in users}
        assert pool.num_kept == len(kept)
        # What is not kept was evicted by an allocation, and nothing else.
        assert kept <= named - set(users)
        assert len(named - set(users) - kept) <= pool.num_evicted


def test_a_sequence_grows_in_place_while_it_can() -> None:
    pool = PagePool(100)
    first, second = pool.allocate(2), pool.allocate(2)
    for _ in range(3):
        first.extend(pool.allocate(1, first[-1]))
    for _ in range(3):
        second.extend(pool.allocate(1, second[-1]))
    for pages in (first, second):
        assert pages == list(range(pages[0], pages[0] + 5))


def test_the_longest_unused_are_evicted_first_and_of_a_sequence_its_end() -> None:
    pool = PagePool(6)
    old, new = pool.allocate(3), pool.allocate(3)
    for page in (*old, *new):
        pool.index.add(SCOPE, ids_of(page), page)
    pool.free(old)
    pool.free(new)
    assert (pool.num_free, pool.num_kept) == (6, 6)
    # Reading one again makes it the last to go.
    pool.hold(old[:1])
    pool.free(old[:1])
    order = []
    for _ in range(6):
        (page,) = pool.allocate(1)
        order.append(page)
    assert order == [old[2], old[1], *reversed(new), old[0]]
    assert (pool.num_evicted, pool.num_kept, len(pool.index)) == (6, 0, 0)


def test_a_full_pool_frees_stretches_not_single_pages() -> None:
    pool = PagePool(128)
    for _ in range(8):
        pages = pool.allocate(16)
        for page in pages:
            pool.index.add(SCOPE, ids_of(page), page)
        pool.free(pages)
    assert pool.num_kept == 128
    pages = pool.allocate(1)
    for _ in range(7):
        pages.extend(pool.allocate(1, pages[-1]))
    assert pages == list(range(pages[0], pages[0] + 8))


def test_what_is_held_is_never_evicted() -> None:
    pool = PagePool(3)
    (page,) = pool.allocate(1)
    pool.index.add(SCOPE, ids_of(page), page)
    pool.free([page])
    pool.hold([page])
    assert page not in pool.allocate(2)
    assert page in pool.index
    with pytest.raises(OutOfPages):
        pool.allocate(1)
