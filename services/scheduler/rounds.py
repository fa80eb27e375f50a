"""The rounds of one session: what each committed, and the counters at any length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from outrider.wire.generation import Counters, DraftSource, SourceCounters


@dataclass(frozen=True, slots=True)
class Part:
    """One source's tokens in a proposal; positions count from its own first token."""

    source: DraftSource
    drafted: int
    depth: int
    accepted: int
    raw_accepted: int


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One applied round, in the numbers of its verdict."""

    committed: int
    accepted: int
    raw_accepted: int
    drafted: int
    prefill_only: bool = False
    # Who drafted the most, and how deep what was put to the target is.
    source: DraftSource = DraftSource.NONE
    depth: int = 0
    # Who drafted what, in the order of the tokens; empty where `source` drafted all.
    parts: tuple[Part, ...] = ()

    def parts_inside(self, inside: int) -> Iterator[Part]:
        """The parts, with what stays accepted of them in a round of whose tokens the first `inside` stay."""
        left = min(self.accepted, inside)
        whole = Part(self.source, self.drafted, self.depth, self.accepted, self.raw_accepted)
        alone = self.drafted and self.source is not DraftSource.NONE
        for part in self.parts or ((whole,) if alone else ()):
            yield replace(part, accepted=min(part.accepted, left))
            left = max(0, left - part.drafted)


class Ledger:
    """Counts one session; `counters` can be asked for any shorter length."""

    def __init__(self) -> None:
        self._rounds: list[RoundRecord] = []
        self.discarded_rounds = 0
        self.missed_proposals = 0
        self.reopens = 0

    def apply(self, record: RoundRecord) -> None:
        """Note a round whose result was applied."""
        self._rounds.append(record)

    def counters(self, kept: int | None = None) -> Counters:
        """The counters, cut to the first `kept` tokens that these rounds committed; None: all of them.

        A round that crosses the cut counts with the tokens before it: accepted tokens come first in a round,
        so with 3 accepted and a bonus, a cut behind 2 keeps committed 2, accepted 2. A round behind the cut
        counts as discarded. What was put to the target stays drafted, and what matched stays raw accepted.
        """
        left = sum(record.committed for record in self._rounds) if kept is None else kept
        rounds = committed = drafted = accepted = raw_accepted = 0
        discarded = self.discarded_rounds
        depths: list[int] = []
        accepted_depths: list[int] = []
        by_source: dict[DraftSource, SourceCounters] = {}
        for record in self._rounds:
            inside = min(record.committed, left)
            left -= inside
            if record.prefill_only:
                continue
            if not inside:
                discarded += 1
                continue
            rounds += 1
            committed += inside
            drafted += record.drafted
            accepted += min(record.accepted, inside)
            depths.append(record.depth)
            accepted_depths.append(min(record.accepted, inside))
            raw_accepted += record.raw_accepted
            for part in record.parts_inside(inside):
                before = by_source.get(part.source, SourceCounters(part.source))
                by_source[part.source] = SourceCounters(
                    part.source, before.drafted + part.drafted, before.accepted + part.accepted
                )
        return Counters(
            rounds=rounds,
            committed=committed,
            drafted=drafted,
            accepted=accepted,
            raw_accepted=raw_accepted,
            discarded_rounds=discarded,
            missed_proposals=self.missed_proposals,
            reopens=self.reopens,
            drafted_by_position=_reached(depths, max(depths, default=0)),
            accepted_by_position=_reached(accepted_depths, max(depths, default=0)),
            by_source=tuple(by_source.values()),
        )


def _reached(depths: Sequence[int], num_positions: int) -> tuple[int, ...]:
    """How many depths go past each position: (2, 1, 0) past positions 0 and 1 gives (2, 1)."""
    return tuple(sum(depth > position for depth in depths) for position in range(num_positions))
