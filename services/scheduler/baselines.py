"""What each draft model's acceptance usually is on a workload, and what it is now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from services.scheduler.windows import Sums, Window

BUCKET_S = 10.0
MINUTE = 6
"""Buckets of one minute."""
NUM_MINUTES = 5
"""Minutes that are watched before they count as usual."""
WATCHED_S = NUM_MINUTES * MINUTE * BUCKET_S

ENOUGH = 50
"""Drafted tokens that say something of a minute."""
ENOUGH_FOR_BASELINE = 1000
"""Drafted tokens that say what is usual."""
MEMORY = 100_000
"""Drafted tokens at which the baseline is halved, so that it follows what changes over days."""
FALLEN, RECOVERED = 0.8, 0.9
"""Shares of the baseline: below the first one acceptance has fallen, from the second on it is as ever."""
RELUCTANCE = 0.1
"""Weight in the baseline of what comes while acceptance has fallen: an hour of it must not pass for usual."""
MAX_PAIRS = 256
"""Pairs of draft and workload; the one that drafted least recently gives way."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One draft model on one workload, at one moment. A rate that too few tokens speak for is None."""

    model_version: str
    workload: str
    # Of each of the last minutes, newest first.
    minutes: tuple[float | None, ...]
    # Of those minutes together.
    watched: float | None
    # Of all before them.
    baseline: float | None

    @property
    def latest(self) -> float | None:
        """Of the last minute."""
        return self.minutes[0]

    @property
    def against_baseline(self) -> float | None:
        """1.0 is as ever, 0.5 half of it."""
        if self.watched is None or not self.baseline:
            return None
        return self.watched / self.baseline

    @property
    def fallen(self) -> bool:
        """Whether it is known to accept clearly less than it did."""
        return self.against_baseline is not None and self.against_baseline < FALLEN

    @property
    def recovered(self) -> bool:
        """Whether it is known to accept what it did."""
        return self.against_baseline is not None and self.against_baseline >= RECOVERED

    def stays_below(self, bound: float, for_s: float) -> bool:
        """Whether each minute of that time is below `bound`, of which at least half and the last are known.

        No more than the minutes that are watched can be asked about.
        """
        num_minutes = min(NUM_MINUTES, max(1, round(for_s / (MINUTE * BUCKET_S))))
        asked = self.minutes[:num_minutes]
        known = [rate for rate in asked if rate is not None]
        return (
            self.latest is not None and 2 * len(known) >= len(asked) and all(rate < bound for rate in known)
        )


class Pair:
    """The counts behind one `Standing`."""

    def __init__(self, now: float, baseline: Sums = Sums()) -> None:  # noqa: B008  # a value
        self.baseline = baseline
        # As it was when it was last asked for.
        self._fallen = False
        # One bucket more: the one that is being filled.
        self._watched = Window(BUCKET_S, NUM_MINUTES * MINUTE + 1, now, on_gone=self._settle)

    def judged(self, now: float, drafted: int, accepted: int) -> None:
        """A round was decided."""
        self._watched.add(now, accepted, drafted)

    def standing(self, now: float, model_version: str, workload: str) -> Standing:
        """As of now."""
        minutes = [self._minute(now, number) for number in range(NUM_MINUTES)]
        standing = Standing(
            model_version,
            workload,
            minutes=tuple(_rate(each, ENOUGH) for each in minutes),
            watched=_rate(self._watched.sums(now), NUM_MINUTES * ENOUGH),
            baseline=_rate(self.baseline, ENOUGH_FOR_BASELINE),
        )
        self._fallen = standing.fallen
        return standing

    def _minute(self, now: float, number: int) -> Sums:
        # The newest one has the bucket that is being filled beside six full ones.
        if not number:
            return self._watched.sums(now, num_buckets=MINUTE + 1)
        return self._watched.sums(now, num_buckets=MINUTE, skipped=1 + number * MINUTE)

    def _settle(self, gone: Sums) -> None:
        weight = RELUCTANCE if self._fallen else 1.0
        part, whole = self.baseline.part + weight * gone.part, self.baseline.whole + weight * gone.whole
        halved = 0.5 if whole > MEMORY else 1.0
        self.baseline = Sums(halved * part, halved * whole)


class Baselines:
    """All pairs of draft model, by the version of its load, and workload."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, str], Pair] = OrderedDict()

    def judged(self, now: float, model_version: str, workload: str, drafted: int, accepted: int) -> None:
        """A round with a draft of this model was decided."""
        key = (model_version, workload)
        pair = self._pairs.get(key)
        if pair is None:
            pair = self._pairs[key] = Pair(now)
            if len(self._pairs) > MAX_PAIRS:
                self._pairs.popitem(last=False)
        self._pairs.move_to_end(key)
        pair.judged(now, drafted, accepted)

    def standings(self, now: float) -> Iterator[Standing]:
        """Of all pairs."""
        for (model_version, workload), pair in list(self._pairs.items()):
            yield pair.standing(now, model_version, workload)

    def reloaded(self, now: float, before: str, after: str) -> None:
        """The draft of version `before` was loaded again as `after`: it is expected to accept what it did."""
        for version, workload in list(self._pairs):
            if version == before:
                old = self._pairs.pop((version, workload))
                self._pairs[after, workload] = Pair(now, old.baseline)


def _rate(sums: Sums, enough: int) -> float | None:
    return sums.ratio if sums.whole >= enough else None
