"""How deep proposals reach: per depth, how often a token was there and how often it was accepted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.wire.worker import MAX_DEPTH

SESSION_DECAY = 0.98
SHARED_DECAY = 0.998
PRIOR_WEIGHT = 8.0
"""Rounds that a prior is worth against what a session has seen itself."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Of a proposal with room for n tokens: index j is depth j + 1; neither ever rises with depth."""

    # Chance that the proposal has a token there.
    offered: tuple[float, ...]
    # Chance that the token there is accepted.
    accepted: tuple[float, ...]

    def depth(self, k: int) -> float:
        """Tokens that a proposal of at most k tokens has, on average."""
        return sum(self.offered[:k])

    def gain(self, k: int) -> float:
        """Tokens of it that are accepted, on average."""
        return sum(self.accepted[:k])


def guess(accepted: float, offered: float = 1.0) -> Reach:
    """What to expect where nothing is known: each token as likely as the one before it was."""
    return Reach(
        tuple(offered**depth for depth in range(MAX_DEPTH)),
        tuple(accepted ** (depth + 1) for depth in range(MAX_DEPTH)),
    )


class Acceptance:
    """Decayed counts of one source, with a prior where they are few."""

    def __init__(self, decay: float) -> None:
        self._decay = decay
        # Index j: rounds that had room for depth j + 1, that offered a token there, that had it accepted.
        self._could: list[float] = []
        self._offered: list[float] = []
        self._accepted: list[float] = []

    @property
    def num_rounds(self) -> float:
        """Rounds that are remembered; old ones count less."""
        return self._could[0] if self._could else 0.0

    def add(self, room: int, offered: int, accepted: int) -> None:
        """A proposal with room for `room` tokens had `offered`, of which the first `accepted` were right."""
        room = max(min(room, MAX_DEPTH), offered)
        for counts, upto in (
            (self._could, room),
            (self._offered, offered),
            (self._accepted, min(accepted, offered)),
        ):
            for depth in range(len(counts)):
                counts[depth] *= self._decay
            counts.extend([0.0] * (room - len(counts)))
            for depth in range(upto):
                counts[depth] += 1.0

    def reach(self, prior: Reach) -> Reach:
        """The estimate; at each depth the prior weighs as much as `PRIOR_WEIGHT` rounds.

        What it says of a depth is how likely the token is after the one before it: a session that goes deeper
        than others is expected to go on so. Depths that were never asked for are taken for as likely as the
        last one at least, or nobody would ever learn of them.
        """
        offered = self._curve(self._offered, prior.offered)
        accepted = self._curve(self._accepted, prior.accepted)
        return Reach(offered, tuple(map(min, accepted, offered)))

    def _curve(self, counts: Sequence[float], prior: Sequence[float]) -> tuple[float, ...]:
        chances: list[float] = []
        last = usual = ratio = 1.0
        for depth in range(MAX_DEPTH):
            could = self._could[depth] if depth < len(self._could) else 0.0
            expected = min(1.0, prior[depth] / usual) if usual > 0 else 0.0
            if depth and could < 1:
                expected = max(expected, ratio)
            usual = prior[depth]
            seen = counts[depth] if could else 0.0
            chance = min(last, (seen + PRIOR_WEIGHT * last * expected) / (could + PRIOR_WEIGHT))
            ratio = chance / last if last > 0 else 0.0
            last = chance
            chances.append(chance)
        return tuple(chances)

    def summary(self) -> bytes:
        """For another scheduler; JSON."""
        rows = [[round(each, 3) for each in row] for row in (self._could, self._offered, self._accepted)]
        return json.dumps(rows).encode()

    @classmethod
    def from_summary(cls, decay: float, data: bytes) -> Acceptance | None:
        """Read a summary; None when it is none: whoever wrote it may have been anybody."""
        try:
            rows = json.loads(data)
        except ValueError:
            return None
        if not _is_summary(rows):
            return None
        read = cls(decay)
        read._could, read._offered, read._accepted = ([float(each) for each in row] for row in rows)
        return read


def _is_summary(rows: object) -> bool:
    if not isinstance(rows, list) or len(rows) != 3 or not all(isinstance(row, list) for row in rows):
        return False
    lengths = {len(row) for row in rows}
    return len(lengths) == 1 and lengths.pop() <= MAX_DEPTH and all(_are_counts(row) for row in rows)


def _are_counts(row: Sequence[object]) -> bool:
    return all(
        isinstance(each, int | float) and not isinstance(each, bool) and 0 <= each <= 1e6 for each in row
    )
