"""What a round costs, fitted online: the target's step, and a proposal of a draft model."""

from __future__ import annotations

from collections.abc import Sequence

from services.scheduler.control.estimates import DecayedMean, LinearFit

ENOUGH_SAMPLES = 3
"""Before so many samples a cost is not known."""
_MAX_ROWS = 512
"""Steps of more rows read prompts, and say nothing of rounds."""
_STEP_DECAY = 0.99
_ROWS_DECAY = 0.9
_LINE_WEIGHT = 1.0
"""Samples that the line is worth at a number of rows."""
_PROPOSAL_DECAY = 0.97
_KILO = 1 / 1000


class VerifyCost:
    """Seconds of a step of the target as a function of its rows and of the tokens that they see.

    What was measured at a number of rows counts there: products of a few rows more can cost nothing, or a
    whole block of registers. Where there is little of it a line in rows and context does.
    """

    def __init__(self) -> None:
        # Per step; per row; per thousand tokens of context.
        self._fit = LinearFit((0.02, 0.001, 0.001), (0.2, 0.01, 0.01), _STEP_DECAY)
        self._measured: dict[int, _Measured] = {}
        self._batch = DecayedMean(0.9)
        self._rows = DecayedMean(0.9)

    @property
    def known(self) -> bool:
        """Whether there were enough samples."""
        return self._fit.num_samples >= ENOUGH_SAMPLES

    @property
    def num_neighbours(self) -> float:
        """Sessions that shared the last steps with one of ours."""
        return max(0.0, self._batch.value(1.0) - 1.0)

    @property
    def rows_of_a_session(self) -> float:
        """Rows that a session had in the last steps, on average."""
        return self._rows.value(1.0)

    def add(self, seconds: float, *, rows: int, batch_size: int, context: int) -> None:
        """A step took so long; `context` is the length of the session of ours in it."""
        if not 0 < rows <= _MAX_ROWS or batch_size < 1:
            return
        features = (1.0, rows, context * batch_size * _KILO)
        self._measured.setdefault(_bucket(rows), _Measured()).add(seconds, features)
        self._fit.add(features, seconds)
        self._batch.add(batch_size)
        self._rows.add(rows / batch_size)

    def seconds(self, rows: float, context: int) -> float:
        """Of a step with `rows` rows, ours and our neighbours'."""
        whole, share = int(rows), rows - int(rows)
        below, above = (self._seconds(each, context) for each in (whole, whole + 1))
        return max(1e-4, below * (1 - share) + above * share)

    def _seconds(self, rows: int, context: int) -> float:
        features = (1.0, rows, context * (1 + self.num_neighbours) * _KILO)
        measured = self._measured.get(_bucket(rows))
        off = measured.off(self._fit) if measured else 0.0
        return self._fit.predict(features) + off


class _Measured:
    """Steps of like size: how long they took, and what they were like."""

    def __init__(self) -> None:
        self._seconds = DecayedMean(_ROWS_DECAY)
        self._features = tuple(DecayedMean(_ROWS_DECAY) for _ in range(3))

    def add(self, seconds: float, features: Sequence[float]) -> None:
        """One more."""
        self._seconds.add(seconds)
        for mean, feature in zip(self._features, features, strict=True):
            mean.add(feature)

    def off(self, line: LinearFit) -> float:
        """Seconds that they lay above the line as it is now; less where there are few."""
        share = self._seconds.weight / (self._seconds.weight + _LINE_WEIGHT)
        return share * (self._seconds.value() - line.predict([mean.value() for mean in self._features]))


def _bucket(rows: int) -> int:
    """Each count up to 32 of its own; eighths of a power of two beyond."""
    if rows <= 32:
        return rows
    step = 1 << (rows.bit_length() - 4)
    return rows // step * step


class DraftCost:
    """Seconds from question to proposal, network included, by depth and by tokens to catch up."""

    def __init__(self) -> None:
        # Per proposal; per drafted token; per token that the draft has not read yet.
        self._fit = LinearFit((0.005, 0.01, 0.0005), (0.05, 0.02, 0.005), _PROPOSAL_DECAY)

    @property
    def known(self) -> bool:
        """Whether there were enough samples."""
        return self._fit.num_samples >= ENOUGH_SAMPLES

    @property
    def token_s(self) -> float:
        """Seconds that one more drafted token takes."""
        return self._fit.weights[1]

    def add(self, seconds: float, *, depth: int, num_behind: int) -> None:
        """A proposal of `depth` tokens took so long, `num_behind` of the session's tokens being new to it."""
        if depth > 0:
            self._fit.add((1.0, depth, num_behind), seconds)

    def seconds(self, depth: float, num_behind: int) -> float:
        """Of a proposal."""
        return self._fit.predict((1.0, depth, num_behind))
