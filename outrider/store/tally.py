"""Counters of the store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Numbers of the event loop's, read when somebody looks."""

    num_hits: int = 0
    num_misses: int = 0
    # Too late, failed, or not even tried.
    num_failed_reads: int = 0
    num_writes: int = 0
    # Refused, failed, or too many at once.
    num_dropped_writes: int = 0

    def looked_up(self, *, found: bool) -> None:
        """Somebody looked something up."""
        self.num_hits += found
        self.num_misses += not found
