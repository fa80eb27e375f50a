"""What the KV pool of a worker is used for, as one value that any thread may read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.runtime.reuse import PrefixCounters

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Memory:
    """KV pages of one moment, and counters since the worker's start."""

    num_pages: int = 0
    # Held by sessions.
    num_used_pages: int = 0
    # Held by nobody, with a content that a session may still take over. The rest is empty.
    num_kept_pages: int = 0
    # Times that a session's KV was dropped to make room for another's.
    num_preemptions: int = 0
    prefix: PrefixCounters = PrefixCounters()

    @property
    def num_empty_pages(self) -> int:
        """Neither held nor kept."""
        return self.num_pages - self.num_used_pages - self.num_kept_pages

    @property
    def usage_ratio(self) -> float:
        """Share of the pages that sessions hold, 0 to 1."""
        return self.num_used_pages / self.num_pages if self.num_pages else 0.0

    @classmethod
    def of(cls, runtime: Runtime, *, num_preemptions: int, before: PrefixCounters) -> Memory:
        """Of this moment; `before` counts what earlier models of the worker came to."""
        return cls(
            num_pages=runtime.num_pages,
            num_used_pages=runtime.num_pages - runtime.num_free_pages,
            num_kept_pages=runtime.num_kept_pages,
            num_preemptions=num_preemptions,
            prefix=before + runtime.prefix_counters,
        )
