"""Rounds added up by model and draft source: numbers of the event loop's, read when somebody scrapes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from outrider.telemetry import Reading
from outrider.telemetry import metric_names as names
from outrider.wire.state import SourceState
from outrider.wire.worker import MAX_DEPTH

if TYPE_CHECKING:
    from outrider.wire.generation import DraftSource
    from services.scheduler.rounds import Part, RoundRecord

WINDOW = 512
"""Rounds that the gauge of the mean acceptance length looks back on."""


def _zeros() -> list[int]:
    return [0] * (MAX_DEPTH + 1)


@dataclass(slots=True)
class SourceTally:
    """Rounds whose draft came from one source."""

    rounds: int = 0
    committed: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    raw_accepted: int = 0
    # Index d: rounds that drafted, and accepted, exactly d deep; no round costs more than one addition.
    by_depth: list[int] = field(default_factory=_zeros)
    by_accepted: list[int] = field(default_factory=_zeros)
    # Tokens that the last rounds with a draft committed.
    window: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, part: Part, committed: int) -> None:
        """Count a part of a round that committed so many tokens in all."""
        self.drafts += 1
        self.drafted += part.drafted
        self.accepted += part.accepted
        self.raw_accepted += part.raw_accepted
        self.by_depth[min(part.depth, MAX_DEPTH)] += 1
        self.by_accepted[min(part.accepted, MAX_DEPTH)] += 1
        self.window.append(committed)

    def added_to(self, state: SourceState) -> SourceState:
        """The state with this tally's tokens in it."""
        return SourceState(
            state.source,
            state.drafted + self.drafted,
            state.accepted + self.accepted,
            _sums(state.drafted_by_position, reached(self.by_depth, self.by_depth)),
            _sums(state.accepted_by_position, reached(self.by_depth, self.by_accepted)),
        )

    def readings(self, model: str, source: str) -> Iterator[Reading]:
        """What a scrape gets."""
        labels = (model, source)
        yield Reading(names.ROUNDS, self.rounds, labels)
        yield Reading(names.COMMITTED_TOKENS, self.committed, labels)
        if not self.drafts:
            return
        yield Reading(names.NUM_DRAFTS, self.drafts, labels)
        yield Reading(names.NUM_DRAFT_TOKENS, self.drafted, labels)
        yield Reading(names.NUM_ACCEPTED_TOKENS, self.accepted, labels)
        yield Reading(names.NUM_RAW_ACCEPTED_TOKENS, self.raw_accepted, labels)
        for metric, counts in (
            (names.NUM_DRAFT_TOKENS_PER_POS, self.by_depth),
            (names.NUM_ACCEPTED_TOKENS_PER_POS, self.by_accepted),
        ):
            for position, count in enumerate(reached(self.by_depth, counts)):
                yield Reading(metric, count, (*labels, str(position)))
        window = tuple(self.window)
        yield Reading(names.MEAN_ACCEPTANCE_LENGTH, sum(window) / len(window), labels)


def _sums(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    return tuple(one + other for one, other in zip_longest(left, right, fillvalue=0))


def reached(by_depth: list[int], counts: list[int]) -> list[int]:
    """How many reached each position that any draft had.

    Example: with counts (5, 2, 1), 5 rounds reached none, 2 one and 1 two: position 0 was reached by 3 and
    position 1 by 1.
    """
    deepest = max((depth for depth, count in enumerate(by_depth) if count), default=0)
    return [sum(counts[position + 1 :]) for position in range(deepest)]


@dataclass(slots=True)
class ModelTally:
    """Rounds of one target."""

    model: str
    discarded_rounds: int = 0
    missed_proposals: int = 0
    reopens: int = 0
    by_source: dict[DraftSource, SourceTally] = field(default_factory=dict)

    def add(self, record: RoundRecord, inside: int) -> None:
        """Count a round of whose tokens the first `inside` stay."""
        tally = self._of(record.source)
        tally.rounds += 1
        tally.committed += inside
        for part in record.parts_inside(inside):
            self._of(part.source).add(part, inside)

    def _of(self, source: DraftSource) -> SourceTally:
        tally = self.by_source.get(source)
        if tally is None:
            tally = self.by_source[source] = SourceTally()
        return tally

    def readings(self) -> Iterator[Reading]:
        """What a scrape gets."""
        yield Reading(names.DISCARDED_ROUNDS, self.discarded_rounds, (self.model,))
        yield Reading(names.MISSED_PROPOSALS, self.missed_proposals, (self.model,))
        yield Reading(names.REOPENS, self.reopens, (self.model,))
        for source, tally in list(self.by_source.items()):
            yield from tally.readings(self.model, source.name.lower())


class Tallies:
    """Those of all targets that were served."""

    def __init__(self) -> None:
        self._by_model: dict[str, ModelTally] = {}

    def of(self, model: str) -> ModelTally:
        """The one of a model."""
        return self._by_model.setdefault(model, ModelTally(model))

    @property
    def num_committed(self) -> int:
        """Tokens that all rounds committed."""
        return sum(tally.committed for model in self._by_model.values() for tally in model.by_source.values())

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """What each source came to, over all targets."""
        states: dict[DraftSource, SourceState] = {}
        for model in self._by_model.values():
            for source, tally in model.by_source.items():
                if tally.drafts:
                    states[source] = tally.added_to(states.get(source) or SourceState(source))
        return tuple(states.values())

    def readings(self) -> Iterator[Reading]:
        """What a scrape gets."""
        for tally in list(self._by_model.values()):
            yield from tally.readings()
