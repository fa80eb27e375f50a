"""What a policy sees before a round, what it chooses, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.wire.generation import DraftSource


@dataclass(frozen=True, slots=True)
class Offer:
    """Tokens that a lookup has at hand; they cost nothing but rows of the target."""

    source: DraftSource
    # Tokens of the text that agree with what the lookup knows, before what it offers.
    match_length: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a round may choose; 0 is always allowed."""

    min_k: int
    max_k: int

    def clamp(self, k: int) -> int:
        """The nearest k that is allowed for a round that drafts."""
        return min(max(k, self.min_k), self.max_k)


@dataclass(frozen=True, slots=True)
class View:
    """A session before one round."""

    bounds: Bounds
    # Tokens of the session, prompt included.
    length: int
    offers: tuple[Offer, ...] = ()
    # The draft model that can be asked; empty: none.
    draft: str = ""
    # Tokens of the session that the draft model has not been told.
    num_behind: int = 0
    # Seconds per token that the session wishes for, and that it has had so far; None: no wish, no token.
    wished_s: float | None = None
    reached_s: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The proposal of one round: so many tokens of one lookup, and then so many of the draft model."""

    lookup: DraftSource | None = None
    num_lookup: int = 0
    num_model: int = 0
    # The product of confidence at which the model ends its part; 0: never.
    min_confidence: float = 0.0

    @property
    def k(self) -> int:
        """Tokens at most."""
        return self.num_lookup + self.num_model


@dataclass(frozen=True, slots=True)
class Judged:
    """What a round's committed tokens say of an offer: the first `num_right` of `num_tokens` were right."""

    num_tokens: int
    num_right: int

    @classmethod
    def by(cls, tokens: Sequence[int], committed: Sequence[int]) -> Judged:
        """Compare; what lies behind the first wrong token, or behind what was committed, is not judged."""
        pairs = zip(tokens, committed, strict=False)
        right = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
        if right is None:
            right = min(len(tokens), len(committed))
            return cls(right, right)
        return cls(right + 1, right)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One applied round."""

    view: View
    choice: Choice
    # One per offer of the view.
    judged: tuple[Judged, ...]
    # Tokens of each part that were put to the target, and how many of them were accepted.
    lookup_drafted: int
    lookup_accepted: int
    model_drafted: int
    model_accepted: int
    committed: int
    # From the question to a draft, or from the round's begin, to the verdict.
    seconds: float
    # A draft model was asked and its answer came in time.
    model_answered: bool = False
    # Of the model's part: how likely it takes each token and all before it to be right.
    confidences: tuple[float, ...] = ()


class Policy(Protocol):
    """Decides for one session."""

    def choose(self, view: View) -> Choice:
        """Before a round."""
        ...

    def observe(self, outcome: Outcome) -> None:
        """After it."""
        ...
