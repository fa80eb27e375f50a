"""A session as the draft sees it: committed tokens that others own, and its own guesses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.sampling import TokenSampler
    from outrider.wire.draft import OpenDraft


@dataclass(slots=True)
class Mirror:
    """The draft's own part of a session."""

    opening: OpenDraft
    # Stands at the last committed token; moved forward and back while proposing.
    sampler: TokenSampler
    # Every committed id is one of this model's: without that it can not read the session.
    readable: bool
    # Ids that the session's KV was last aligned to: committed ones, then guesses.
    context: list[int] = field(default_factory=list)
    # Leading ids of `context` that are committed, so known to be right.
    num_agreed: int = 0
