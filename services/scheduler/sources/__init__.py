"""Draft sources: each proposes tokens and observes what was committed; one dict lists the lookups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.wire.generation import DraftSource
from services.scheduler.control.choice import Offer
from services.scheduler.sources.candidate import CandidateSource
from services.scheduler.sources.model import ModelSource
from services.scheduler.sources.ngram import NgramSource
from services.scheduler.sources.pattern import PatternSource
from services.scheduler.sources.source import Ask, Lookup, SessionFacts, Source

__all__ = ["LOOKUPS", "SOURCES", "Ask", "Found", "Lookup", "ModelSource", "SessionFacts", "Source", "Sources"]

LOOKUPS: dict[DraftSource, Callable[[SessionFacts], Lookup]] = {
    DraftSource.CANDIDATE_CACHE: CandidateSource,
    DraftSource.NGRAM: NgramSource,
    DraftSource.PATTERN_CACHE: PatternSource,
}
"""Sources that run here and need no model; of equal offers the first one counts."""
STORED = frozenset({DraftSource.CANDIDATE_CACHE, DraftSource.PATTERN_CACHE})
"""Those that live on the shared store."""
SOURCES = (*LOOKUPS, DraftSource.MODEL)
"""What a request may ask for."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup has at hand."""

    offer: Offer
    tokens: tuple[int, ...]


class Sources:
    """The sources of one session.

    Args:
        wanted: the only one to draft; NONE: none. None: all of them. Behind a model there is always the
            n-gram index, for rounds that the model leaves without an answer.
        facts: of the session.
    """

    def __init__(self, wanted: DraftSource | None, facts: SessionFacts) -> None:
        with_model = wanted in (None, DraftSource.MODEL)
        self.model = ModelSource(facts) if with_model else None
        self._only_model = wanted is DraftSource.MODEL
        self._lookups: list[Lookup] = [
            make(facts)
            for kind, make in LOOKUPS.items()
            if (wanted in (None, kind) or (kind is DraftSource.NGRAM and self._only_model))
            and (kind not in STORED or (facts.store is not None and facts.request.store))
        ]

    @property
    def status(self) -> str:
        """Why some round went without the model that was wanted; empty while none did."""
        return self.model.status if self.model else ""

    @property
    def looks_up(self) -> bool:
        """Whether lookups have a say in each round."""
        return bool(self._lookups) and not self._only_model

    async def look_up(self, ask: Ask, *, fallback: bool = False) -> list[Found]:
        """What the lookups offer; with a model that is the only one to draft, as a `fallback` alone."""
        if self._only_model and not fallback:
            return []
        found = []
        for lookup in self._lookups:
            tree = await lookup.propose(ask)
            if tree is not None and tree.num_nodes:
                offer = Offer(lookup.kind, lookup.match_length, tree.num_nodes)
                found.append(Found(offer, tree.tokens))
        return found

    def observe(self, committed: Sequence[int]) -> None:
        """Tell all of them what was committed, whoever proposed it."""
        for source in self._all:
            source.observe(committed)

    def finished(self, num_output: int) -> None:
        """The answer has come to its end, behind so many output tokens: what is worth keeping may be kept."""
        for lookup in self._lookups:
            lookup.finished(num_output)

    def close(self) -> None:
        """Free what they hold: an ended session is remembered for a while, and its index is large."""
        for source in self._all:
            source.close()
        self._lookups, self.model = [], None

    @property
    def _all(self) -> list[Source]:
        return [*self._lookups, *([self.model] if self.model else [])]
