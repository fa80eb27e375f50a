"""Lookup in the session's own tokens: what followed the last time that the text stood as it stands now.

Prompt lookup decoding (Saxena 2023); the chain of earlier places per key is that of LZ77 compressors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from outrider.sampling.tree import DraftTree
from outrider.wire.generation import DraftSource
from services.scheduler.sources.source import Ask, SessionFacts

SHORTEST = 2
"""The shortest run of tokens that counts as a match."""
LONGEST = 32
"""Matches longer than this count as equal."""
MAX_PLACES = 64
"""Earlier places that one lookup compares: bounds its time on text that repeats one short run for ever."""


class NgramSource:
    """Proposes what followed the longest earlier match of the last tokens; the latest place wins a tie."""

    kind: ClassVar[DraftSource] = DraftSource.NGRAM

    def __init__(self, facts: SessionFacts) -> None:
        self._end_ids = facts.end_ids
        self._index = NgramIndex(facts.tokens, SHORTEST, LONGEST)
        self.status = ""

    @property
    def match_length(self) -> int:
        """As in `Lookup`."""
        return self._index.match_length

    async def propose(self, ask: Ask) -> DraftTree | None:
        return DraftTree.chain(self._up_to_end(self._index.continuation(ask.k)))

    def observe(self, committed: Sequence[int]) -> None:
        self._index.update()

    def finished(self, num_output: int) -> None:
        """Nothing of it is kept."""

    def close(self) -> None:
        """Nothing is held elsewhere."""

    def _up_to_end(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Nothing can follow an end id."""
        return next((tokens[: at + 1] for at, token in enumerate(tokens) if token in self._end_ids), tokens)


class NgramIndex:
    """Places of every run of `shortest` tokens in a list that grows.

    One dictionary entry per run and one number per token: an index of every length would take seven times the
    time and memory on a long prompt, and longer matches are found by comparing backwards from the places of a
    short one.

    Args:
        tokens: the list; call `update` after it has grown.
        shortest: the shortest run that counts as a match.
        longest: matches longer than this count as equal.
    """

    def __init__(self, tokens: Sequence[int], shortest: int, longest: int) -> None:
        self._tokens = tokens
        self._shortest = shortest
        self._longest = longest
        # run -> index behind its latest occurrence.
        self._latest: dict[tuple[int, ...], int] = {}
        # index behind a run -> the one of the same run's previous occurrence; 0: there is none.
        self._previous: list[int] = []
        # (place, length) of the best match of the tokens as they are; None: not looked up yet.
        self._best: tuple[int, int] | None = None
        self.update()

    def update(self) -> None:
        """Take in what was appended."""
        self._best = None
        for end in range(len(self._previous), len(self._tokens)):
            # The run that ends where the text ends is left out: it would be its own match.
            run = tuple(self._tokens[max(0, end - self._shortest) : end])
            complete = len(run) == self._shortest
            self._previous.append(self._latest.get(run, 0) if complete else 0)
            if complete:
                self._latest[run] = end

    def continuation(self, num_tokens: int) -> tuple[int, ...]:
        """What followed the longest match, at most `num_tokens`; () without a match.

        A match that overlaps the end continues into what is proposed: behind [1, 2, 3, 1, 2, 3] follows
        [1, 2, 3, 1, ...] for as long as asked.
        """
        place, match_length = self._look_up()
        if not match_length:
            return ()
        proposed: list[int] = []
        length = len(self._tokens)
        for index in range(place, place + num_tokens):
            proposed.append(self._tokens[index] if index < length else proposed[index - length])
        return tuple(proposed)

    @property
    def match_length(self) -> int:
        """How many of the last tokens stood so before, `longest` at most; 0: fewer than `shortest`."""
        return self._look_up()[1]

    def _look_up(self) -> tuple[int, int]:
        """Index behind the longest match, and its length; both 0 without one."""
        if self._best is None:
            self._best = self._longest_match()
        return self._best

    def _longest_match(self) -> tuple[int, int]:
        best, best_length = 0, 0
        place = self._latest.get(tuple(self._tokens[-self._shortest :]), 0)
        for _ in range(MAX_PLACES):
            if not place or best_length == self._longest:
                break
            length = self._match_length(place)
            if length > best_length:
                best, best_length = place, length
            place = self._previous[place]
        return best, best_length

    def _match_length(self, place: int) -> int:
        """How many tokens before `place` equal the last ones, `longest` at most."""
        tokens, end = self._tokens, len(self._tokens)
        for length in range(min(self._longest, place)):
            if tokens[place - 1 - length] != tokens[end - 1 - length]:
                return length
        return min(self._longest, place)
