"""Lookup in what followed the last tokens in other sessions: the pattern cache of the shared store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from outrider.sampling.tree import DraftTree
from outrider.store.patterns import CONTINUED, LONGEST
from outrider.wire.generation import DraftSource
from services.scheduler.sources.source import Ask, SessionFacts


class PatternSource:
    """Proposes what most often followed the longest known context; teaches the cache what was committed.

    Raises RuntimeError for facts without a store.
    """

    kind: ClassVar[DraftSource] = DraftSource.PATTERN_CACHE

    def __init__(self, facts: SessionFacts) -> None:
        if facts.store is None or facts.namespace is None:
            raise RuntimeError("the session has no store")
        self._facts = facts
        self._patterns = facts.store.patterns
        self._namespace = facts.namespace
        # Positions up to here have been taught; a prompt is no output, and may be anybody's.
        self._num_taught = len(facts.tokens)
        self.match_length = 0
        self.status = ""

    async def propose(self, ask: Ask) -> DraftTree | None:
        context = self._facts.tokens[-LONGEST:]
        found = await self._patterns.lookup(self._namespace, context, ask.k)
        known = _up_to_unknown(found.tokens, self._facts.vocab_size)
        self.match_length = found.match_length if known else 0
        return DraftTree.chain(known)

    def observe(self, committed: Sequence[int]) -> None:
        self._teach(len(self._facts.tokens) - CONTINUED)

    def finished(self, num_output: int) -> None:
        """Nothing more than at any other end."""

    def close(self) -> None:
        self._teach(len(self._facts.tokens))

    def _teach(self, end: int) -> None:
        if end > self._num_taught:
            self._patterns.learn(self._namespace, self._facts.tokens, self._num_taught, end)
            self._num_taught = end


def _up_to_unknown(tokens: Sequence[int], vocab_size: int) -> tuple[int, ...]:
    """The store may hold anything."""
    wrong = (at for at, token in enumerate(tokens) if not 0 <= token < vocab_size)
    return tuple(tokens[: next(wrong, len(tokens))])
