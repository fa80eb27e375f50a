"""Which worker takes the next session.

The better of two that are picked at random (Mitzenmacher, "The Power of Two Choices in Randomized Load
Balancing", 2001): nearly as even as the least loaded of all, and where several schedulers look at the same
old report they do not all run to the same worker.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """What speaks against a worker, the weightiest first."""

    # It failed again and again, and is only there for want of another.
    left_out: bool
    num_sessions: int
    # Rounds that wait for a forward there.
    num_waiting: int = 0


def num_sessions(own: int, own_then: int, reported: int) -> int:
    """Sessions on a worker: those of others as it last said, ours as we know.

    Args:
        own: sessions of ours there now.
        own_then: the same when the report came.
        reported: all sessions, by that report.
    """
    return own + max(0, reported - own_then)


def in_turn(loads: Sequence[Load], source: random.Random) -> list[int]:
    """Indices of workers in the order in which to ask them.

    The first is the less loaded of two picked at random; behind it come the others, the least loaded first.
    One that is left out is picked only where all are.
    """
    if not loads:
        return []
    least = min(load.left_out for load in loads)
    eligible = [index for index, load in enumerate(loads) if load.left_out == least]
    # In random order: equals are not always the same one.
    first = min(source.sample(eligible, min(2, len(eligible))), key=lambda index: loads[index])
    others = [index for index in range(len(loads)) if index != first]
    source.shuffle(others)
    return [first, *sorted(others, key=lambda index: loads[index])]
