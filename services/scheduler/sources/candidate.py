"""The answer that this prompt, or one much like it, was given before: the candidate cache."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

from outrider.sampling.tree import DraftTree
from outrider.store import Candidate
from outrider.wire.generation import DraftSource
from services.scheduler.sources.source import Ask, SessionFacts

SHORTEST = 3
"""Tokens that must agree for the text to be found again in the old answer."""
LONGEST = 32
MAX_PLACES = 64
"""Places that are compared: bounds the time for an old answer that repeats one short run for ever."""
ALIKE_LENGTH = 6
"""What the beginning of an answer counts for, when only a prompt much like this one was given it."""


class CandidateSource:
    """Follows the old answer as long as the text agrees, and finds its place in it again where it does not.

    Raises RuntimeError for facts without a store.
    """

    kind: ClassVar[DraftSource] = DraftSource.CANDIDATE_CACHE

    def __init__(self, facts: SessionFacts) -> None:
        if facts.store is None or facts.namespace is None:
            raise RuntimeError("the session has no store")
        self._facts = facts
        self._cache = facts.store.candidates
        self._namespace = facts.namespace
        self._finding: asyncio.Task[Candidate | None] | None = asyncio.ensure_future(
            self._cache.find(facts.namespace, facts.request.prompt)
        )
        self._old: OldAnswer | None = None
        self.status = ""

    @property
    def match_length(self) -> int:
        """As in `Lookup`."""
        return self._old.match_length if self._old else 0

    async def propose(self, ask: Ask) -> DraftTree | None:
        if self._finding is not None:
            # A bounded read, begun with the session.
            found, self._finding = await self._finding, None
            if found is not None:
                self._old = OldAnswer(found, self._facts.vocab_size)
                self._old.follow(self._facts.tokens[len(self._facts.request.prompt) :])
        return DraftTree.chain(self._old.next_tokens(ask.k) if self._old else ())

    def observe(self, committed: Sequence[int]) -> None:
        if self._old is not None:
            self._old.follow(committed)

    def finished(self, num_output: int) -> None:
        """Keep the answer for the next time."""
        prompt = self._facts.request.prompt
        answer = self._facts.tokens[len(prompt) : len(prompt) + num_output]
        self._cache.remember(self._namespace, prompt, answer)

    def close(self) -> None:
        if self._finding is not None:
            self._finding.cancel()
            self._finding = None


class OldAnswer:
    """A place in an old answer that moves with the new one.

    Example: old [1, 2, 3, 4, 5, 6, 7], new [1, 2, 9, 4, 5, 6]: after 9 there is no place, and after 4, 5, 6
    the next token is 7.

    Args:
        candidate: the old answer; ids that the vocabulary does not have end it.
        vocab_size: ids are below this.
    """

    def __init__(self, candidate: Candidate, vocab_size: int) -> None:
        wrong = (at for at, token in enumerate(candidate.answer) if not 0 <= token < vocab_size)
        self._answer = candidate.answer[: next(wrong, len(candidate.answer))]
        self._new: list[int] = []
        # The index that is expected next; None: lost.
        self._place: int | None = 0
        self.match_length = LONGEST if candidate.exact else ALIKE_LENGTH
        # Run of `SHORTEST` tokens -> the indices behind it, ascending; made when the place is first lost.
        self._places: dict[tuple[int, ...], list[int]] | None = None

    def next_tokens(self, k: int) -> tuple[int, ...]:
        """What comes next if the new answer goes on like the old one."""
        return () if self._place is None else self._answer[self._place : self._place + k]

    def follow(self, committed: Sequence[int]) -> None:
        """The new answer goes on with these."""
        if not committed:
            return
        self._new.extend(committed)
        place = self._place
        if place is not None and tuple(committed) == self._answer[place : place + len(committed)]:
            self._place = place + len(committed)
            self.match_length = min(LONGEST, self.match_length + len(committed))
            return
        self._find(place + len(committed) if place is not None else len(self._new))

    def _find(self, near: int) -> None:
        """The place with the longest agreement, of equal ones the nearest to where it should be."""
        places = self._places_of(tuple(self._new[-SHORTEST:]))
        first = max(0, bisect_left(places, near) - MAX_PLACES // 2)
        self._place = max(
            places[first : first + MAX_PLACES],
            key=lambda at: (self._agreement(at), -abs(at - near)),
            default=None,
        )
        self.match_length = self._agreement(self._place) if self._place is not None else 0

    def _places_of(self, run: tuple[int, ...]) -> Sequence[int]:
        if self._places is None:
            self._places = {}
            for end in range(SHORTEST, len(self._answer)):
                self._places.setdefault(self._answer[end - SHORTEST : end], []).append(end)
        return self._places.get(run, ())

    def _agreement(self, place: int) -> int:
        limit = min(LONGEST, place, len(self._new))
        pairs = zip(reversed(self._answer[place - limit : place]), reversed(self._new), strict=False)
        return next((at for at, (old, new) in enumerate(pairs) if old != new), limit)
