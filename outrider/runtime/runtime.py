"""One model, its KV pool, and the ragged step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from outrider.runtime.layout import lay_out
from outrider.runtime.pages import PAGE_SIZE, PagePool
from outrider.runtime.reuse import PrefixCounters, PrefixReuse
from outrider.runtime.sequence import Segment, Sequence

if TYPE_CHECKING:
    from collections.abc import Sequence as Ordered

    from outrider.runtime.cost import ModelCost
    from outrider.runtime.forward import Forward
    from outrider.runtime.kv import KVPool
    from outrider.wire.worker import ModelInfo, TokenizerFiles

MAX_ROWS = 1024


class Runtime:
    """A loaded model. One thread owns it.

    A position's logits are the same to the bit whatever else is in the batch, however its prefix was cut into
    steps, as a chain or in a tree, and after a rebuild; `numerics.self_test` proves it on the machine at
    hand.
    """

    page_size = PAGE_SIZE
    max_rows = MAX_ROWS

    def __init__(self, forward: Forward, pool: KVPool, num_pages: int) -> None:
        self._forward = forward
        self._pool = pool
        self._pages = PagePool(num_pages)
        self._reuse = PrefixReuse(self._pages, pool.move)
        # Filled by `loading.load_runtime`, once the self-test has run.
        self.info: ModelInfo
        self.tokenizer: TokenizerFiles
        self.cost: ModelCost | None = None

    @property
    def num_pages(self) -> int:
        """Pages of the pool."""
        return self._pages.num_pages

    @property
    def num_free_pages(self) -> int:
        """Pages that no sequence holds, those included whose content is kept until they are needed."""
        return self._pages.num_free

    @property
    def num_kept_pages(self) -> int:
        """Pages that no sequence holds and that one which begins like them may take over."""
        return self._pages.num_kept

    @property
    def prefix_counters(self) -> PrefixCounters:
        """What prefix reuse came to, since the model was loaded."""
        return self._reuse.counters

    def new_sequence(self, scope: bytes | None = None) -> Sequence:
        """An empty sequence; it holds no memory until `reserve` or `reuse`.

        With a scope it may read pages of others in the same scope (`reuse`), and they its own (`share`).
        """
        return Sequence(scope=scope)

    def share(self, sequence: Sequence, tokens: Ordered[int]) -> None:
        """Let others of the scope take over what the sequence holds of `tokens`, which are committed."""
        self._reuse.share(sequence, tokens)

    def reuse(self, sequence: Sequence, tokens: Ordered[int]) -> int:
        """Take over what others of the scope hold, or held, of `tokens` behind those that this one holds.

        The last token is always left to be run. Nothing happens in the middle of a page, or when what is held
        was not shared up to its end.

        Returns:
            How many tokens were taken over, whole pages of them.
        """
        return self._reuse.reuse(sequence, tokens)

    def next_page(self, sequence: Sequence, tokens: Ordered[int]) -> bytes | None:
        """Names the page of `tokens` that the sequence runs next; two with one name would do the same work.

        None: others can not take it over.
        """
        return self._reuse.next_page(sequence, tokens)

    def num_missing_pages(self, scope: bytes | None, tokens: Ordered[int]) -> int:
        """Pages that a new sequence of `tokens` and one more would take from the free ones."""
        return self._reuse.num_missing(scope, tokens)

    def can_reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        """Whether `reserve` would succeed."""
        return self._pages.can_allocate(self._missing_pages(sequence, num_tokens))

    def reserve(self, sequence: Sequence, num_tokens: int) -> None:
        """Get pages for `num_tokens` rows beyond those in use. Raises `OutOfPages`."""
        missing = self._missing_pages(sequence, num_tokens)
        if sequence.sealed and self._pages.can_allocate(missing):
            self._reuse.unseal(sequence)
            missing = self._missing_pages(sequence, num_tokens)
        if missing > 0:
            behind = sequence.pages[-1] if sequence.pages else None
            sequence.pages.extend(self._pages.allocate(missing, behind))

    def truncate(self, sequence: Sequence, length: int) -> None:
        """Forget tokens from `length` on, and the pending tree.

        Pages stay with the sequence, but for shared ones: those behind `length` are given back, and the one
        that `length` lies in is replaced before it is written to.
        """
        if not 0 <= length <= sequence.length:
            raise ValueError(f"cannot truncate a sequence of {sequence.length} tokens to {length}")
        self._drop_tree(sequence)
        self._reuse.cut(sequence, length)
        sequence.length = length
        del sequence.tokens[length:]
        if sequence.broken_at is not None and sequence.broken_at >= length:
            sequence.broken_at = None

    def keep(self, sequence: Sequence, path: Ordered[int]) -> None:
        """Make the pending nodes of `path` (root first) tokens of the sequence, and forget the others."""
        expected_parent = -1
        for node in path:
            if sequence.parents[node] != expected_parent:
                raise ValueError(f"{list(path)} is not a path of the pending tree")
            expected_parent = node
        base, nodes = sequence.length, np.asarray(path, dtype=np.int64)
        moved = nodes != np.arange(len(nodes))
        if moved.any():
            slots = sequence.slots(base, base + len(sequence.parents))
            self._pool.move(slots[nodes[moved]], slots[np.flatnonzero(moved)])
        broken = [base + depth for depth, node in enumerate(path) if node in sequence.broken_nodes]
        if broken and sequence.broken_at is None:
            sequence.broken_at = broken[0]
        sequence.tokens.extend(sequence.nodes[node] for node in path)
        self._drop_tree(sequence)
        sequence.length = base + len(nodes)

    def release(self, sequence: Sequence) -> None:
        """Give all pages back; the sequence is empty and can be used again.

        Pages that were shared stay as they are until their memory is needed.
        """
        self._pages.free(sequence.pages)
        sequence.pages, sequence.chain = [], []
        sequence.sealed = sequence.looked_up = False
        self.truncate(sequence, 0)

    def step(self, segments: Ordered[Segment]) -> list[np.ndarray]:
        """Run one forward over all segments.

        Several segments of one sequence are taken in order. Tokens must lie in [0, vocab_size).

        Returns:
            Per segment the logits asked for, float32 [len(wanted), logits_width]. A row that came out NaN or
            infinite, and every row behind it in its sequence, is NaN; other sequences are not touched.

        Raises:
            ValueError: more than `max_rows` rows, none, or rows that were not reserved; nothing has changed
            then.
        """
        self._check(segments)
        before = {
            id(segment.sequence): (segment.sequence, segment.sequence.length, len(segment.sequence.parents))
            for segment in reversed(segments)
        }
        try:
            layout = lay_out(list(segments))
            logits, finite = self._forward(layout)
        except BaseException:
            for sequence, length, num_nodes in before.values():
                sequence.length = length
                del sequence.parents[num_nodes:]
            raise
        for segment in segments:
            ids = segment.sequence.tokens if segment.parents is None else segment.sequence.nodes
            ids.extend(segment.tokens)
        if not finite.all():
            _mark_broken(segments, finite)
        return _split(segments, logits)

    def _check(self, segments: Ordered[Segment]) -> None:
        num_rows = sum(len(segment.tokens) for segment in segments)
        if not 0 < num_rows <= self.max_rows:
            raise ValueError(f"a step takes 1 to {self.max_rows} rows, not {num_rows}")
        needed: dict[int, int] = {}
        for segment in segments:
            sequence = segment.sequence
            if segment.parents is None and (sequence.parents or id(sequence) in needed):
                raise ValueError("a sequence's chain comes first in a step, and not behind a pending tree")
            if segment.parents is not None and len(segment.parents) != len(segment.tokens):
                raise ValueError(f"{len(segment.tokens)} tokens with {len(segment.parents)} parents")
            rows = needed[id(sequence)] = needed.get(id(sequence), sequence.num_rows) + len(segment.tokens)
            if rows > sequence.capacity:
                raise ValueError(f"{rows} rows in a sequence with room for {sequence.capacity}: reserve")

    def _missing_pages(self, sequence: Sequence, num_tokens: int) -> int:
        num_pages = len(sequence.pages)
        if sequence.sealed and self._pages.num_holders(sequence.pages[-1]) > 1:
            num_pages -= 1
        return max(0, -(-(sequence.num_rows + num_tokens) // PAGE_SIZE) - num_pages)

    @staticmethod
    def _drop_tree(sequence: Sequence) -> None:
        sequence.parents.clear()
        sequence.nodes.clear()
        sequence.broken_nodes.clear()


def _mark_broken(segments: Ordered[Segment], finite: np.ndarray) -> None:
    """Remember which rows broke. Rows of a segment lie together, and its sequence has moved on already."""
    first = 0
    remaining: dict[int, int] = {}
    for segment in segments:
        remaining[id(segment.sequence)] = remaining.get(id(segment.sequence), 0) + len(segment.tokens)
    for segment in segments:
        sequence, count = segment.sequence, len(segment.tokens)
        rows = finite[first : first + count]
        behind = remaining[id(sequence)] = remaining[id(sequence)] - count
        # Rows in use before this segment: all now, less those of the segments behind it, less its own.
        start = sequence.num_rows - behind - count
        for row in np.flatnonzero(~rows):
            place = start + int(row)
            if segment.parents is not None:
                sequence.broken_nodes.add(place - sequence.length)
            elif sequence.broken_at is None:
                sequence.broken_at = place
        first += count


def _split(segments: Ordered[Segment], logits: np.ndarray) -> list[np.ndarray]:
    """Cut the wanted rows by segment; rows at or behind a broken one become NaN."""
    parts: list[np.ndarray] = []
    first = 0
    for segment in segments:
        part = logits[first : first + len(segment.wanted)]
        first += len(segment.wanted)
        sequence = segment.sequence
        if sequence.broken_at is not None or sequence.broken_nodes:
            part = part.copy()
            for index, row in enumerate(segment.wanted):
                if _is_behind_broken(segment, row):
                    part[index] = np.nan
        parts.append(part)
    return parts


def _is_behind_broken(segment: Segment, row: int) -> bool:
    sequence = segment.sequence
    if segment.parents is None:
        # The chain ends where the sequence does: nothing but a tree can follow it in the same step.
        position = sequence.length - len(segment.tokens) + row
        return sequence.broken_at is not None and sequence.broken_at <= position
    if sequence.broken_at is not None:
        return True
    node = len(sequence.parents) - len(segment.tokens) + row
    return any(ancestor in sequence.broken_nodes for ancestor in sequence.path_to(node))
