"""All workers of a scheduler: a link to each, who fits whom, and who takes the next session."""

from __future__ import annotations

import asyncio
import random
import secrets
from types import TracebackType
from typing import Any, Self

from outrider.telemetry import In, Metrics, StreamMeter
from outrider.v1 import draft_pb2_grpc, validator_pb2_grpc
from outrider.wire import draft, validator
from outrider.wire.draft import OpenDraft, Proposal, Propose
from outrider.wire.state import WorkerState, WorkerStatus
from outrider.wire.validator import OpenTarget, Verdict, Verify
from services.scheduler.compatibility import Tokenizers
from services.scheduler.latency import Latency
from services.scheduler.link import Role, StreamLink
from services.scheduler.ports import DraftPort, ValidatorPort
from services.scheduler.settings import SchedulerSettings

FLUSH_S = 0.5
"""Time that the last Close commands get to be written at the end."""

ValidatorLink = StreamLink[OpenTarget | Verify, Verdict]
DraftLink = StreamLink[OpenDraft | Propose, Proposal]

VALIDATOR: Role[Verdict] = Role(
    name="validator",
    method=lambda channel: validator_pb2_grpc.ValidatorServiceStub(channel).Verify,
    encode=validator.encode_request,
    decode=validator.decode_response,
    opening=OpenTarget,
    answer=Verdict,
)
DRAFT: Role[Proposal] = Role(
    name="draft",
    method=lambda channel: draft_pb2_grpc.DraftServiceStub(channel).Draft,
    encode=draft.encode_request,
    decode=draft.decode_response,
    opening=OpenDraft,
    answer=Proposal,
)


class Fleet:
    """The links and the choice among them; an async context that keeps them connected."""

    def __init__(self, settings: SchedulerSettings, metrics: Metrics | None = None) -> None:
        metrics = metrics or Metrics(In.SCHEDULER)
        peer_id = secrets.token_bytes(16)
        cap_s = settings.draft_wait_ms / 1000
        validators_meter, drafts_meter = StreamMeter(metrics, "validator"), StreamMeter(metrics, "draft")
        self._tokenizers = Tokenizers()
        # Set at the next change, and then replaced.
        self.change = asyncio.Event()
        self._validators: list[ValidatorLink] = [
            StreamLink(
                address,
                VALIDATOR,
                peer_id=peer_id,
                admit=self._admit_validator,
                notify=self.notify,
                latency=Latency(cap_s),
                meter=validators_meter,
            )
            for address in settings.validators
        ]
        self._drafts: list[DraftLink] = [
            StreamLink(
                address,
                DRAFT,
                peer_id=peer_id,
                admit=self._admit_draft,
                notify=self.notify,
                latency=Latency(cap_s),
                meter=drafts_meter,
            )
            for address in settings.drafts
        ]
        # The validator whose token ids all others share; set by the first that is reached.
        self._reference: ValidatorLink | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(link.run()) for link in self._links]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(link.flush(FLUSH_S) for link in self._links))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _links(self) -> list[StreamLink[Any, Any]]:
        return [*self._validators, *self._drafts]

    def validators(self, *, numerics_id: str = "") -> list[ValidatorPort]:
        """As in `Workers`."""
        fitting = [
            link for link in self._validators if link.ready and numerics_id in ("", link.info.numerics_id)
        ]
        return [*sorted(fitting, key=_load)]

    def draft(self, model: str | None = None) -> DraftPort | None:
        """As in `Workers`."""
        fitting = (link for link in self._drafts if link.ready and model in (None, link.info.model))
        return min(fitting, key=_load, default=None)

    def draft_models(self) -> tuple[str, ...]:
        """As in `Workers`."""
        return tuple(sorted({link.info.model for link in self._drafts if link.ready}))

    def why_no_draft(self) -> str:
        """As in `Workers`."""
        refused = (link.reason for link in self._drafts if link.status is WorkerStatus.REFUSED)
        return next((f"refused:{reason}" for reason in refused), "absent")

    def why_no_validator(self) -> str:
        """One clause per validator, for the error of a request that none can take."""
        return "; ".join(f"{link.address}: {link.reason or 'ready'}" for link in self._validators)

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
        return tuple(link.state for link in self._validators)

    @property
    def draft_states(self) -> tuple[WorkerState, ...]:
        """For `Describe`."""
        return tuple(link.state for link in self._drafts)

    async def _admit_validator(self, link: ValidatorLink) -> str:
        """Fits when it shares ids with those in use; with nobody in use, any does."""
        others = [each for each in self._validators if each is not link and (each.ready or each.draining)]
        if others:
            return await self._tokenizers.why_unlike(others[0], link)
        before = self._reference.info.tokenizer_fingerprint if self._reference else None
        self._reference = link
        if before not in (None, link.info.tokenizer_fingerprint):
            for each in self._drafts:  # they were compared with the old one
                each.reconnect()
        self.notify()
        return ""

    async def _admit_draft(self, link: DraftLink) -> str:
        while self._reference is None:
            await self.changed()
        return await self._tokenizers.why_unlike(self._reference, link)


def _load(link: StreamLink[Any, Any]) -> tuple[int, int, int, float]:
    """Sessions of ours first: they are counted at once, and the worker's own report comes later."""
    return link.num_sessions, link.load.num_waiting, link.load.num_sessions, random.random()  # noqa: S311  # breaks ties
