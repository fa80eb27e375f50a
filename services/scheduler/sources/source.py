"""The two verbs of a draft source, and what a session tells its sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from outrider.wire.scheduler import GenerateRequest
from services.scheduler.metering import SessionMeter, unmetered
from services.scheduler.waiting import WaitingRoom

if TYPE_CHECKING:
    from outrider.sampling.tree import DraftTree
    from outrider.store import Namespace, Store
    from outrider.wire.generation import DraftSource
    from services.scheduler.control.control import SessionControl
    from services.scheduler.ports import Workers
    from services.scheduler.settings import SchedulerSettings


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What stays the same over a session, and the one list that grows."""

    session: bytes
    request: GenerateRequest
    # Prompt and output; the session alone appends, before it calls `observe`.
    tokens: list[int]
    # Ids that end the answer.
    end_ids: frozenset[int]
    vocab_size: int
    workers: Workers
    settings: SchedulerSettings
    # Told what asking and being answered took.
    meter: SessionMeter = field(default_factory=unmetered)
    # Of all sessions of the process.
    waiting: WaitingRoom = field(default_factory=WaitingRoom)
    # What is kept for sessions to come, and where in it this one belongs.
    store: Store | None = None
    namespace: Namespace | None = None
    # Picks among several draft models; None: the least loaded draft, whatever its model.
    control: SessionControl | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One round's wish: at most `w` candidates of at most `k` tokens, k and w at least 1."""

    round: int
    k: int
    w: int
    # The session's first round here: nobody waits in it.
    first: bool = False
    traceparent: str = ""
    tracestate: str = ""
    # The product of confidence below which a candidate ends early; 0: never.
    min_confidence: float = 0.0
    # Ids that another source proposes first; they count in k.
    prefix: tuple[int, ...] = ()


class Source(Protocol):
    """Anything that proposes tokens."""

    kind: ClassVar[DraftSource]
    # Why a round went without: empty while none did.
    status: str

    async def propose(self, ask: Ask) -> DraftTree | None:
        """A tree, perhaps empty; None when an answer should have come and did not. Never raises."""
        ...

    def observe(self, committed: Sequence[int]) -> None:
        """Take note of tokens that were committed, whoever proposed them."""
        ...

    def close(self) -> None:
        """Free what the source holds elsewhere."""
        ...


class Lookup(Source, Protocol):
    """A source that has its tokens at hand."""

    @property
    def match_length(self) -> int:
        """Tokens of the text that agree with what was looked up, before the last proposal."""
        ...

    def finished(self, num_output: int) -> None:
        """The answer has come to its end, behind so many output tokens."""
        ...
