"""Which pages of the KV pool are free."""

from __future__ import annotations

from outrider.runtime.errors import OutOfPages

PAGE_SIZE = 64
"""Tokens per page. Also the KV bucket of the canonical attention, so that a bucket is always whole pages."""


class PagePool:
    """Hands out page numbers 0 <= page < num_pages.

    A sequence asks for the page behind its last one first: consecutive pages can be read in place, scattered
    ones have to be gathered.
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = set(range(num_pages))
        # Fresh sequences start in the middle of the largest untouched stretch that a simple cursor finds.
        self._cursor = 0

    @property
    def num_free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def can_allocate(self, count: int) -> bool:
        """Whether `allocate(count)` would succeed."""
        return count <= len(self._free)

    def allocate(self, count: int, behind: int | None = None) -> list[int]:
        """Take `count` pages, consecutive ones behind page `behind` where possible.

        Raises:
            OutOfPages: fewer than `count` are free; nothing is taken.
        """
        if not self.can_allocate(count):
            raise OutOfPages(f"{count} KV pages asked for, {len(self._free)} of {self.num_pages} are free")
        taken: list[int] = []
        wanted = self._start(count) if behind is None else behind + 1
        for _ in range(count):
            page = wanted if wanted in self._free else self._start(count - len(taken))
            self._free.remove(page)
            taken.append(page)
            wanted = page + 1
        return taken

    def free(self, pages: list[int]) -> None:
        """Give pages back."""
        self._free.update(pages)

    def _start(self, count: int) -> int:
        """First page of a free stretch, with twice the room asked for if possible, so that it can grow."""
        for room in (max(8, 2 * count), count):
            for offset in range(0, self.num_pages, room):
                start = (self._cursor + offset) % self.num_pages
                if all(page in self._free for page in range(start, min(start + room, self.num_pages))):
                    self._cursor = (start + room) % self.num_pages
                    return start
        return min(self._free)
