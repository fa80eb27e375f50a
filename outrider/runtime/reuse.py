"""Prefix reuse: sequences that begin alike read the same pages, or copies of them.

Only full pages are shared, of tokens that are committed and whose rows came out finite. A shared page is
never written again: a sequence that is cut in the middle of one goes on in a copy.

Nothing here changes a bit: a position's keys and values are the same however and by whom they were computed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from outrider.runtime.pages import PAGE_SIZE
from outrider.runtime.prefix import chained

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence as Ordered

    from outrider.runtime.pages import PagePool
    from outrider.runtime.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PrefixCounters:
    """Since the model was loaded. Hits / queries is the share of tokens that were not run again."""

    # Tokens of sequences that began (or began anew after a preemption) in a scope.
    num_queried_tokens: int = 0
    # Those of them whose KV was there.
    num_hit_tokens: int = 0
    num_evicted_pages: int = 0

    def __add__(self, other: PrefixCounters) -> PrefixCounters:
        return PrefixCounters(
            self.num_queried_tokens + other.num_queried_tokens,
            self.num_hit_tokens + other.num_hit_tokens,
            self.num_evicted_pages + other.num_evicted_pages,
        )


class PrefixReuse:
    """What `Runtime` does with pages that several sequences may read."""

    def __init__(self, pages: PagePool, copy_rows: Callable[[np.ndarray, np.ndarray], None]) -> None:
        """`copy_rows` copies the KV of slots (int64 [num_rows]) to other slots."""
        self._pages = pages
        self._copy_rows = copy_rows
        self._num_queried = 0
        self._num_hit = 0

    @property
    def counters(self) -> PrefixCounters:
        """Of this pool."""
        return PrefixCounters(self._num_queried, self._num_hit, self._pages.num_evicted)

    def share(self, sequence: Sequence, tokens: Ordered[int]) -> None:
        """Let others find the full pages that hold the first of `tokens`, as far as their rows are sound."""
        sound = sequence.length if sequence.broken_at is None else sequence.broken_at
        last = min(sound, len(tokens)) // PAGE_SIZE
        if sequence.scope is None:
            return
        for number in range(len(sequence.chain), last):
            ids = tokens[number * PAGE_SIZE : (number + 1) * PAGE_SIZE]
            if sequence.tokens[number * PAGE_SIZE : (number + 1) * PAGE_SIZE] != list(ids):
                return  # guesses, which the sequence will be cut back to
            name = self._pages.index.add(_end(sequence), ids, sequence.pages[number])
            sequence.chain.append(name)

    def reuse(self, sequence: Sequence, tokens: Ordered[int]) -> int:
        """Take over what is there of the KV of `tokens` behind those held, but for the last token.

        The last one is always run, since its logits are wanted.

        Returns:
            How many tokens were taken over.
        """
        first = len(sequence.chain)
        if sequence.scope is None or sequence.parents or first * PAGE_SIZE != sequence.length:
            return 0
        if not sequence.looked_up:
            sequence.looked_up = True
            self._num_queried += len(tokens) - sequence.length
        found = self._found(sequence, tokens)
        if not found:
            return 0
        pages = [page for _, page in found]
        # Before anything else: a page that is held is not evicted.
        self._pages.hold(pages)
        self._pages.free(sequence.pages[first:])
        del sequence.pages[first:]
        sequence.pages.extend(self._in_place(sequence.pages, pages))
        sequence.chain.extend(name for name, _ in found)
        num_tokens = len(found) * PAGE_SIZE
        sequence.tokens.extend(tokens[sequence.length : sequence.length + num_tokens])
        sequence.length += num_tokens
        self._num_hit += num_tokens
        return num_tokens

    def next_page(self, sequence: Sequence, tokens: Ordered[int]) -> bytes | None:
        """The name of the page that the sequence runs next on its way to all `tokens`; None when it can not
        be found by others.
        """
        first = len(sequence.chain)
        if sequence.scope is None or first * PAGE_SIZE != sequence.length:
            return None
        ids = tokens[sequence.length : sequence.length + PAGE_SIZE]
        return chained(_end(sequence), ids) if len(ids) == PAGE_SIZE else None

    def num_missing(self, scope: bytes | None, tokens: Ordered[int]) -> int:
        """Pages that a new sequence of these tokens, and one more, takes from those that nobody holds."""
        held = 0
        if scope is not None:
            found = _chain(self._pages, scope, tokens, 0)
            held = sum(self._pages.num_holders(page) > 0 for _, page in found)
        return len(tokens) // PAGE_SIZE + 1 - held

    def cut(self, sequence: Sequence, length: int) -> None:
        """Give up the pages behind `length`, and see to it that the one that `length` lies in can be written.

        Example: pages 4, 9, 7 are in the chain and length becomes 100. Page 7 goes back; rows from 100 on go
        to page 9: it is not found any more, or, with another holder, left to that one at the next `unseal`.
        """
        num_full, num_pages = length // PAGE_SIZE, -(-length // PAGE_SIZE)
        if len(sequence.chain) <= num_full and not sequence.sealed:
            return
        self._pages.free(sequence.pages[num_pages:])
        del sequence.pages[num_pages:]
        del sequence.chain[num_full:]
        sequence.sealed = False
        if num_pages > num_full:
            page = sequence.pages[-1]
            if self._pages.num_holders(page) > 1:
                sequence.sealed = True
            else:
                self._pages.index.forget(page)

    def unseal(self, sequence: Sequence) -> None:
        """Leave the last page to its other holders, for a copy of the rows in use. Raises `OutOfPages`."""
        shared = sequence.pages[-1]
        sequence.sealed = False
        if self._pages.num_holders(shared) == 1:  # they have gone meanwhile
            self._pages.index.forget(shared)
            return
        behind = sequence.pages[-2] if len(sequence.pages) > 1 else None
        (own,) = self._pages.allocate(1, behind)
        rows = np.arange(sequence.length % PAGE_SIZE)
        self._copy_rows(shared * PAGE_SIZE + rows, own * PAGE_SIZE + rows)
        self._pages.free([shared])
        sequence.pages[-1] = own

    def _found(self, sequence: Sequence, tokens: Ordered[int]) -> list[tuple[bytes, int]]:
        return _chain(self._pages, _end(sequence), tokens, sequence.length)

    def _in_place(self, before: list[int], pages: list[int]) -> list[int]:
        """`pages`, or copies of them where a sequence can grow.

        Keys in consecutive pages are read in place, others are gathered in every layer of every step, and
        one copy costs less than a few steps of that. While memory is plentiful the copy is made.
        """
        whole = [*before[-1:], *pages]
        consecutive = all(left + 1 == right for left, right in itertools.pairwise(whole))
        if consecutive and self._pages.is_empty(pages[-1] + 1):
            return pages
        if self._pages.num_free - len(pages) < self._pages.num_pages // 2:
            return pages
        copies = self._pages.allocate(len(pages), before[-1] if before else None)
        self._copy_rows(_slots(pages), _slots(copies))
        self._pages.free(pages)
        return copies


def _end(sequence: Sequence) -> bytes:
    """What the next page of the sequence's chain continues."""
    return sequence.chain[-1] if sequence.chain else sequence.scope or b""


def _chain(pages: PagePool, parent: bytes, tokens: Ordered[int], start: int) -> list[tuple[bytes, int]]:
    """Names and pages of what is there of tokens[start:], short of the last token."""
    found: list[tuple[bytes, int]] = []
    for first in range(start, len(tokens) - PAGE_SIZE, PAGE_SIZE):
        ids = tokens[first : first + PAGE_SIZE]
        name = chained(parent, ids)
        page = pages.index.find(name, parent, ids)
        if page is None:
            break
        found.append((name, page))
        parent = name
    return found


def _slots(pages: list[int]) -> np.ndarray:
    return (np.asarray(pages, dtype=np.int64)[:, None] * PAGE_SIZE + np.arange(PAGE_SIZE)).reshape(-1)
