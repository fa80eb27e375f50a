"""Which pages of the KV pool are free, who holds the others, and which are kept for later."""

from __future__ import annotations

from collections import OrderedDict

from outrider.runtime.errors import OutOfPages
from outrider.runtime.prefix import PrefixIndex

PAGE_SIZE = 64
"""Tokens per page. Also the KV bucket of the canonical attention, so that a bucket is always whole pages."""

MIN_STRETCH = 8
"""Free pages that a new sequence would like to see in a row."""


class PagePool:
    """Hands out page numbers 0 <= page < num_pages.

    A page has any number of holders. When the last one gives it back, it is kept if the index knows its
    content, and evicted when memory is needed: the page that was given back longest ago first, and of one
    sequence its end before its beginning.

    A sequence asks for the page behind its last one first: consecutive pages can be read in place, scattered
    ones have to be gathered.
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.index = PrefixIndex()
        self.num_evicted = 0
        self._free = set(range(num_pages))
        self._num_holders = [0] * num_pages
        # Without a holder, least recently used first.
        self._kept: OrderedDict[int, None] = OrderedDict()
        # Fresh sequences start in the middle of the largest untouched stretch that a simple cursor finds.
        self._cursor = 0

    @property
    def num_free(self) -> int:
        """Pages that nobody holds, the kept ones included."""
        return len(self._free) + len(self._kept)

    @property
    def num_kept(self) -> int:
        """Pages that nobody holds and whose content is kept until their memory is needed."""
        return len(self._kept)

    def num_holders(self, page: int) -> int:
        """How many hold the page."""
        return self._num_holders[page]

    def is_empty(self, page: int) -> bool:
        """Whether there is such a page, with neither a holder nor a content."""
        return page in self._free

    def can_allocate(self, count: int) -> bool:
        """Whether `allocate(count)` would succeed."""
        return count <= self.num_free

    def allocate(self, count: int, behind: int | None = None) -> list[int]:
        """Take `count` pages, consecutive ones behind page `behind` where possible.

        Raises:
            OutOfPages: fewer than `count` are free; nothing is taken.
        """
        if not self.can_allocate(count):
            raise OutOfPages(f"{count} KV pages asked for, {self.num_free} of {self.num_pages} are free")
        if len(self._free) < count or behind is None or behind + 1 not in self._free:
            self._evict_for(count)
        taken: list[int] = []
        wanted = self._start(count) if behind is None else behind + 1
        for _ in range(count):
            page = wanted if wanted in self._free else self._start(count - len(taken))
            self._free.remove(page)
            self._num_holders[page] = 1
            taken.append(page)
            wanted = page + 1
        return taken

    def hold(self, pages: list[int]) -> None:
        """Become one more holder of pages that are held or kept."""
        for page in pages:
            self._kept.pop(page, None)
            self._num_holders[page] += 1

    def free(self, pages: list[int]) -> None:
        """Give pages back, in the order of their sequence."""
        for page in reversed(pages):
            self._num_holders[page] -= 1
            if self._num_holders[page]:
                continue
            if page in self.index:
                self._kept[page] = None
            else:
                self._free.add(page)

    def _evict_for(self, count: int) -> None:
        """Make room for `count` pages, and then some: what is freed together mostly lies together."""
        stretch = min(max(MIN_STRETCH, 2 * count), self.num_pages // MIN_STRETCH)
        while self._kept and len(self._free) < max(count, stretch):
            page, _ = self._kept.popitem(last=False)
            self.index.forget(page)
            self._free.add(page)
            self.num_evicted += 1

    def _start(self, count: int) -> int:
        """First page of a free stretch, with twice the room asked for if possible, so that it can grow."""
        for room in (max(MIN_STRETCH, 2 * count), count):
            for offset in range(0, self.num_pages, room):
                start = (self._cursor + offset) % self.num_pages
                if all(page in self._free for page in range(start, min(start + room, self.num_pages))):
                    self._cursor = (start + room) % self.num_pages
                    return start
        return min(self._free)
