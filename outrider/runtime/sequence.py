"""One session's place in the KV pool."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from outrider.runtime.pages import PAGE_SIZE


@dataclass(slots=True, eq=False)
class Sequence:
    """Pages, length, and the tree that hangs behind the last token. Changed by `Runtime` alone.

    Token i of the sequence lies in slot `pages[i // 64] * 64 + i % 64`. Node i of the pending tree lies where
    token `length + i` would, whatever its depth is, until `Runtime.keep` puts a path in order.
    """

    pages: list[int] = field(default_factory=list)
    length: int = 0
    parents: list[int] = field(default_factory=list)
    # Rows that came out NaN or infinite, set by `Runtime.step`: the first such token, and such pending nodes.
    broken_at: int | None = None
    broken_nodes: set[int] = field(default_factory=set)
    # Ids of the tokens held, and of the pending nodes.
    tokens: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    # Whose pages it may read (`prefix.scope_of`); None: nobody's, and nobody reads its own.
    scope: bytes | None = None
    # Names of its first pages, full ones, that others may read.
    chain: list[bytes] = field(default_factory=list)
    # The last page, not full any more, has other holders: rows must not be written to it.
    sealed: bool = False
    # What is there of its tokens has been looked for.
    looked_up: bool = False

    @property
    def num_pages(self) -> int:
        """Pages held."""
        return len(self.pages)

    @property
    def capacity(self) -> int:
        """Tokens that fit into the pages held, as far as they may be written."""
        return (len(self.pages) - self.sealed) * PAGE_SIZE

    @property
    def num_rows(self) -> int:
        """Slots in use: tokens and pending nodes."""
        return self.length + len(self.parents)

    def slots(self, start: int, stop: int) -> np.ndarray:
        """Slots of tokens start .. stop - 1, int64 [stop - start]."""
        positions = np.arange(start, stop)
        return (
            np.asarray(self.pages, dtype=np.int64)[positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE
        )

    def path_to(self, node: int) -> list[int]:
        """Pending nodes from the root to `node`, both included."""
        path = [node]
        while (parent := self.parents[path[-1]]) >= 0:
            path.append(parent)
        return path[::-1]


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows that one sequence brings to a step.

    Without `parents` the tokens are a chain behind the sequence's last token and belong to it from then on.
    With `parents` they are new nodes of its pending tree: parents[i] is the index of a pending node (this
    segment's own follow the earlier ones) or -1 for the last token. `wanted` are the indices in `tokens`
    whose logits are asked for.
    """

    sequence: Sequence
    tokens: tuple[int, ...]
    parents: tuple[int, ...] | None = None
    wanted: tuple[int, ...] = ()
