"""The page pool gives each page to one holder, and nothing when there is not enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.runtime.errors import OutOfPages
from outrider.runtime.pages import PagePool


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


def test_a_sequence_grows_in_place_while_it_can() -> None:
    pool = PagePool(100)
    first, second = pool.allocate(2), pool.allocate(2)
    for _ in range(3):
        first.extend(pool.allocate(1, first[-1]))
    for _ in range(3):
        second.extend(pool.allocate(1, second[-1]))
    for pages in (first, second):
        assert pages == list(range(pages[0], pages[0] + 5))
