"""What a session needs from the outside: a validator, a draft, and the set of both.

gRPC streams are one implementation (`link`, `fleet`), scripted fakes the other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from outrider.wire.draft import OpenDraft, Proposal, Propose
from outrider.wire.validator import OpenTarget, Verdict, Verify

if TYPE_CHECKING:
    from outrider.wire.worker import Header, ModelInfo
    from services.scheduler.latency import Latency


class PeerLost(Exception):
    """The connection to a worker is down; what it was asked may or may not have been done."""


class StaleSession(Exception):
    """The worker does not hold the session as it was addressed.

    Attributes:
        epoch: the worker's own; 0 when it holds no such session.
    """

    def __init__(self, epoch: int) -> None:
        super().__init__(f"the worker stands at epoch {epoch}")
        self.epoch = epoch


class ValidatorPort(Protocol):
    """One validator. `ask` raises PeerLost at once when it can not be reached.

    The answer fails with PeerLost, StaleSession, or the OutriderError that ended the session. Cancelling it
    drops whatever comes; an answer of another epoch, round or base length never arrives.
    """

    @property
    def address(self) -> str: ...
    @property
    def info(self) -> ModelInfo: ...
    @property
    def draining(self) -> bool: ...

    def ask(
        self, header: Header, command: OpenTarget | Verify, *, resume: bool = False
    ) -> asyncio.Future[Verdict]:
        """Put one round to the target; with `resume` the session is first taken over at header.epoch."""
        ...

    def close(self, header: Header) -> None:
        """Free the session there; never raises."""
        ...


class DraftPort(Protocol):
    """One draft worker; answers and failures as with `ValidatorPort`."""

    @property
    def address(self) -> str: ...
    @property
    def info(self) -> ModelInfo: ...
    @property
    def ready(self) -> bool: ...
    @property
    def latency(self) -> Latency: ...

    def ask(self, header: Header, command: OpenDraft | Propose) -> asyncio.Future[Proposal]:
        """Ask for one proposal."""
        ...

    def room(self, session: bytes) -> int:
        """How many more rounds of the session the worker takes now."""
        ...

    def close(self, header: Header) -> None:
        """Free the session there; never raises."""
        ...


class Workers(Protocol):
    """The workers that are ready, as a session picks among them."""

    def validators(self, *, numerics_id: str = "") -> list[ValidatorPort]:
        """Validators that take new sessions, least loaded first; with an id, only those of equal bits."""
        ...

    def draft(self, model: str | None = None) -> DraftPort | None:
        """A lightly loaded draft that fits the target, of one model or of any."""
        ...

    def draft_models(self) -> tuple[str, ...]:
        """Models that some ready draft has, in an order that stays."""
        ...

    def why_no_draft(self) -> str:
        """`absent` or `refused:<why>`."""
        ...

    async def changed(self) -> None:
        """Return when some worker's status has changed."""
        ...
