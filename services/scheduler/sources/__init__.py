"""Draft sources: each proposes tokens for a round and observes what was committed; one dict lists them."""

from __future__ import annotations

from collections.abc import Callable

from outrider.wire.generation import DraftSource
from services.scheduler.sources.model import ModelSource
from services.scheduler.sources.ngram import NgramSource
from services.scheduler.sources.source import Ask, SessionFacts, Source

__all__ = ["FALLBACKS", "SOURCES", "Ask", "SessionFacts", "Source", "sources_for"]

SOURCES: dict[DraftSource, Callable[[SessionFacts], Source]] = {
    DraftSource.NGRAM: NgramSource,
    DraftSource.MODEL: ModelSource,
}
FALLBACKS: dict[DraftSource, DraftSource] = {DraftSource.MODEL: DraftSource.NGRAM}
"""Who proposes in a round that the first choice leaves without an answer."""


def sources_for(wanted: DraftSource, facts: SessionFacts) -> list[Source]:
    """The wanted source and its fallbacks, in this order; none for NONE."""
    chosen: list[Source] = []
    kind: DraftSource | None = wanted
    while kind in SOURCES:
        chosen.append(SOURCES[kind](facts))
        kind = FALLBACKS.get(kind)
    return chosen
