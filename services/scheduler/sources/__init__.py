"""Draft sources: each proposes tokens for a round and observes what was committed; one dict lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.wire.generation import DraftSource
from services.scheduler.sources.model import ModelSource
from services.scheduler.sources.ngram import NgramSource
from services.scheduler.sources.source import Ask, SessionFacts, Source

__all__ = ["FALLBACKS", "SOURCES", "Ask", "SessionFacts", "Source", "Sources"]

SOURCES: dict[DraftSource, Callable[[SessionFacts], Source]] = {
    DraftSource.NGRAM: NgramSource,
    DraftSource.MODEL: ModelSource,
}
FALLBACKS: dict[DraftSource, DraftSource] = {DraftSource.MODEL: DraftSource.NGRAM}
"""Who proposes in a round that the first choice leaves without an answer."""


class Sources:
    """The sources of one session, and the order in which a round asks them.

    Args:
        wanted: goes first in every round, before its fallbacks; NONE: there are no sources. None: the model,
            except where the text stands behind a long match and the n-gram index needs no model.
        facts: of the session.
    """

    def __init__(self, wanted: DraftSource | None, facts: SessionFacts) -> None:
        self._chosen: list[Source] = []
        kind: DraftSource | None = DraftSource.MODEL if wanted is None else wanted
        while kind in SOURCES:
            self._chosen.append(SOURCES[kind](facts))
            kind = FALLBACKS.get(kind)
        lookups = [source for source in self._chosen if isinstance(source, NgramSource)]
        self._lookup = lookups[0] if wanted is None and lookups else None

    @property
    def status(self) -> str:
        """Why some round went without the source that was wanted; empty while none did."""
        return next((source.status for source in self._chosen if source.status), "")

    def in_order(self, *, first: bool) -> list[Source]:
        """Whom a round asks, until one answers; in the `first` one a model hears of the session."""
        if self._lookup is None or first or not self._lookup.leads:
            return self._chosen
        return [self._lookup, *(source for source in self._chosen if source is not self._lookup)]

    def observe(self, committed: Sequence[int]) -> None:
        """Tell all of them what was committed, whoever proposed it."""
        for source in self._chosen:
            source.observe(committed)

    def close(self) -> None:
        """Free what they hold: an ended session is remembered for a while, and its index is large."""
        for source in self._chosen:
            source.close()
        self._chosen, self._lookup = [], None
