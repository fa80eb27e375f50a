"""How deep proposals reach: per depth, how often a token was there and how often it was accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from outrider.wire.worker import MAX_DEPTH

SESSION_DECAY = 0.98
SHARED_DECAY = 0.998
CALIBRATION_DECAY = 0.99
CALIBRATION_WEIGHT = 8.0
USUAL_CALIBRATION = 0.75
SURE = 0.85


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


class Calibration:
    """How a draft's confidence stands to what becomes of its tokens: right tokens / expected ones.

    Only tokens that were not sure count: it is there that a proposal is ended or goes on.
    """

    def __init__(self) -> None:
        self._expected = CALIBRATION_WEIGHT
        self._right = CALIBRATION_WEIGHT * USUAL_CALIBRATION

    @property
    def factor(self) -> float:
        """Chance that the next token is right, per confidence in all before it."""
        return self._right / self._expected

    def add(self, confidences: Sequence[float], num_right: int) -> None:
        """A proposal had `num_right` right tokens; a confidence is that of a token and all before it."""
        self._expected *= CALIBRATION_DECAY
        self._right *= CALIBRATION_DECAY
        for depth, before in enumerate((1.0, *confidences[:-1])):
            if before < SURE:
                self._expected += before
                self._right += depth < num_right


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

    def reach(self, prior: Reach, prior_weight: float) -> Reach:
        """The estimate; at each depth the prior weighs as much as `prior_weight` rounds.

        What it says of a depth is how likely the token is after the one before it: a session that goes deeper
        than others is expected to go on so. At depths that were never asked for, what is there is taken to be
        as often right as at the last one: else nobody would ever learn of them.
        """
        offered: list[float] = []
        accepted: list[float] = []
        there = right = usual_there = usual_right = 1.0
        for depth in range(MAX_DEPTH):
            could = self._could[depth] if depth < len(self._could) else 0.0
            goes_on = _ratio(prior.offered[depth], usual_there)
            is_right = _ratio(prior.accepted[depth], usual_right)
            usual_there, usual_right = prior.offered[depth], prior.accepted[depth]
            before = _ratio(right, there)
            if could < 1:
                there *= goes_on
                right = there * before if depth else min(there, is_right)
            else:
                weight = could + prior_weight
                there = min(there, (self._offered[depth] + prior_weight * there * goes_on) / weight)
                right = min(right, there, (self._accepted[depth] + prior_weight * right * is_right) / weight)
            offered.append(there)
            accepted.append(right)
        return Reach(tuple(offered), tuple(accepted))

    def summary(self) -> list[list[float]]:
        """The counts, for another scheduler: room, offered, accepted by depth."""
        return [[round(each, 3) for each in row] for row in (self._could, self._offered, self._accepted)]

    @classmethod
    def from_summary(cls, decay: float, rows: object) -> Acceptance | None:
        """Read a summary; None when it is none: whoever wrote it may have been anybody."""
        if not _is_summary(rows):
            return None
        read = cls(decay)
        read._could, read._offered, read._accepted = ([float(each) for each in row] for row in rows)
        return read


def _ratio(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0 else 0.0


def _is_summary(rows: object) -> TypeGuard[list[list[float]]]:
    if not isinstance(rows, list) or len(rows) != 3 or not all(isinstance(row, list) for row in rows):
        return False
    lengths = {len(row) for row in rows}
    return len(lengths) == 1 and lengths.pop() <= MAX_DEPTH and all(_are_counts(row) for row in rows)


def _are_counts(row: Sequence[object]) -> bool:
    return all(
        isinstance(each, int | float) and not isinstance(each, bool) and 0 <= each <= 1e6 for each in row
    )
