"""All workers of a scheduler: a link to each, who fits whom, and who takes the next session."""

from __future__ import annotations

import asyncio
import random
import secrets
from types import TracebackType
from typing import Any, Self

from outrider.telemetry import In, Metrics, StreamMeter
from outrider.wire.draft import OpenDraft, Proposal, Propose
from outrider.wire.state import WorkerState, WorkerStatus
from outrider.wire.validator import OpenTarget, Verdict, Verify
from services.scheduler.compatibility import Tokenizers
from services.scheduler.discovery import Resolver, resolve
from services.scheduler.link import StreamLink
from services.scheduler.placement import in_turn
from services.scheduler.pool import L, Pool
from services.scheduler.ports import DraftPort, ValidatorPort
from services.scheduler.roles import DRAFT, VALIDATOR
from services.scheduler.settings import SchedulerSettings

FLUSH_S = 0.5
"""Time that the last Close commands get to be written at the end."""

ValidatorLink = StreamLink[OpenTarget | Verify, Verdict]
DraftLink = StreamLink[OpenDraft | Propose, Proposal]


class Fleet:
    """The links and the choice among them; an async context that keeps them connected.

    Args:
        settings: name the workers.
        metrics: of the process.
        resolver: looks names of workers up.
    """

    def __init__(
        self,
        settings: SchedulerSettings,
        metrics: Metrics | None = None,
        resolver: Resolver = resolve,
    ) -> None:
        metrics = metrics or Metrics(In.SCHEDULER)
        peer_id = secrets.token_bytes(16)
        self._random = random.Random()  # noqa: S311  # places sessions
        self._tokenizers = Tokenizers()
        # Set at the next change, and then replaced.
        self.change = asyncio.Event()

        def link(address: str, role: Any, admit: Any, meter: StreamMeter) -> StreamLink[Any, Any]:
            return StreamLink(
                address,
                role,
                peer_id=peer_id,
                admit=admit,
                notify=self.notify,
                wait_s=settings.draft_wait_ms / 1000,
                meter=meter,
            )

        validators_meter, drafts_meter = StreamMeter(metrics, "validator"), StreamMeter(metrics, "draft")
        self._validators: Pool[ValidatorLink] = Pool(
            settings.validators,
            lambda address: link(address, VALIDATOR, self._admit_validator, validators_meter),
            resolve=resolver,
            changed=self.notify,
            gone=self._forget_reference,
        )
        self._drafts: Pool[DraftLink] = Pool(
            settings.drafts,
            lambda address: link(address, DRAFT, self._admit_draft, drafts_meter),
            resolve=resolver,
            changed=self.notify,
        )
        # The validator whose token ids all others share, and its tokenizer; set by the first that is reached.
        self._reference: ValidatorLink | None = None
        self._tokenizer = ""

    async def __aenter__(self) -> Self:
        self._validators.start()
        self._drafts.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(self._validators.stop(FLUSH_S), self._drafts.stop(FLUSH_S))

    def validators(self, *, numerics_id: str = "") -> list[ValidatorPort]:
        """As in `Workers`."""
        ready = self._validators.ready
        return [*self._in_turn([link for link in ready if numerics_id in ("", link.info.numerics_id)])]

    def draft(self, model: str | None = None) -> DraftPort | None:
        """As in `Workers`."""
        return next(
            iter(self._in_turn([link for link in self._usable if model in (None, link.info.model)])), None
        )

    def draft_models(self) -> tuple[str, ...]:
        """As in `Workers`."""
        return tuple(sorted({link.info.model for link in self._usable}))

    def why_no_draft(self) -> str:
        """As in `Workers`."""
        refused = [
            link for link in self._drafts.links if link.status is WorkerStatus.REFUSED or link.health.left_out
        ]
        return next((f"refused:{link.state.reason}" for link in refused), "absent")

    def why_no_validator(self) -> str:
        """One clause per validator, for the error of a request that none can take."""
        return "; ".join(f"{each.address}: {each.reason or 'ready'}" for each in self.validator_states)

    async def changed(self) -> None:
        """As in `Workers`."""
        await self.change.wait()

    def notify(self) -> None:
        """Wake everybody who waits for a change."""
        self.change.set()
        self.change = asyncio.Event()

    @property
    def validator_states(self) -> tuple[WorkerState, ...]:
        """For `Describe`."""
        return self._validators.states

    @property
    def draft_states(self) -> tuple[WorkerState, ...]:
        """For `Describe`."""
        return self._drafts.states

    @property
    def _usable(self) -> list[DraftLink]:
        """Drafts for new sessions: a failing one would cost more than none."""
        return [link for link in self._drafts.ready if not link.health.left_out]

    def _in_turn(self, links: list[L]) -> list[L]:
        return [links[index] for index in in_turn([link.placement for link in links], self._random)]

    async def _admit_validator(self, link: ValidatorLink) -> str:
        """Fits when it shares ids with those in use; with nobody in use, any does."""
        links = self._validators.links
        others = [each for each in links if each is not link and (each.ready or each.draining)]
        if others:
            return await self._tokenizers.why_unlike(others[0], link)
        before, self._tokenizer = self._tokenizer, link.info.tokenizer_fingerprint
        self._reference = link
        if before not in ("", self._tokenizer):
            for each in self._drafts.links:  # they were compared with the old one
                each.reconnect()
        self.notify()
        return ""

    async def _admit_draft(self, link: DraftLink) -> str:
        while self._reference is None:
            await self.changed()
        return await self._tokenizers.why_unlike(self._reference, link)

    def _forget_reference(self, link: ValidatorLink) -> None:
        if self._reference is link:
            # Those that are ready share its ids.
            self._reference = next(iter(self._validators.ready), None)
