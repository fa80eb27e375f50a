"""A session's side of the conversation with its validator: it survives the loss of one."""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.rpc.errors import (
    FailedPrecondition,
    NoEqualReplica,
    OutriderError,
    ProtocolViolation,
    ResourceExhausted,
    Unavailable,
)
from outrider.sampling.tree import DraftTree
from outrider.telemetry import get_logger
from outrider.wire.validator import OpenTarget, Verdict, Verify
from outrider.wire.worker import Header, ModelInfo
from services.scheduler.ports import PeerLost, StaleSession, ValidatorPort
from services.scheduler.rounds import Ledger
from services.scheduler.sources.source import SessionFacts

log = get_logger(__name__)

MAX_LOSSES = 8
"""Times that one round is put to validators that are lost under it: it may be the round that kills them."""


class _Standing(enum.Enum):
    """What the validator of the moment has of the session."""

    UNOPENED = enum.auto()
    HELD = enum.auto()
    # The same process is back behind a new stream, and may hold it still.
    LEASED = enum.auto()


@dataclass(frozen=True, slots=True)
class Round:
    """What is put to the target; unchanged when it is sent again."""

    number: int
    tree: DraftTree
    traceparent: str = ""
    tracestate: str = ""


class Target:
    """Puts rounds to a validator, and to the next one when that is lost.

    Tokens come only from the verdict of (this epoch, this round, this base length), so a round that is sent
    again after a loss commits what the lost verdict would have, once.
    """

    def __init__(self, facts: SessionFacts, ledger: Ledger, port: ValidatorPort) -> None:
        self._facts = facts
        self._ledger = ledger
        self._port: ValidatorPort | None = port
        self._standing = _Standing.UNOPENED
        self.epoch = 0
        # Of the validator of the moment, or of the last one.
        self.info: ModelInfo = port.info
        self.changed_replica = facts.request.numerics_id not in ("", port.info.numerics_id)
        # A verdict came: from then on a refusal is waited out.
        self._established = False
        # Addresses that refused the opening that is being tried.
        self._refused: set[str] = set()
        self._last_was_refused = False

    @property
    def address(self) -> str:
        """Of the validator of the moment; empty between two."""
        return self._port.address if self._port else ""

    async def verify(self, round_: Round) -> Verdict:
        """The verdict on one round.

        Raises:
            NoEqualReplica: the validator is lost, and none of equal numerics id was there by the deadline.
            OutriderError: what the validator ended the session with, or refused it with.
        """
        self._leave_if_draining()
        deadline = math.inf  # set by the first loss
        num_losses = 0
        while num_losses < MAX_LOSSES:
            try:
                port = self._port = self._port or await self._next_port(deadline)
                verdict = await self._ask(port, round_)
            except PeerLost:
                log.info("validator_lost", session=self._facts.session.hex(), address=self.address)
                self._port = None
                num_losses += 1
                deadline = min(deadline, self._new_deadline())
            except StaleSession as stale:
                self.epoch = max(self.epoch, stale.epoch)
                self._standing = _Standing.UNOPENED
                num_losses += 1
            except (ResourceExhausted, Unavailable, FailedPrecondition) as refusal:
                if isinstance(refusal, NoEqualReplica) or self._standing is _Standing.HELD:
                    raise
                deadline = min(deadline, self._deadline_after(refusal))
                await self._refused_with(refusal, deadline)
            else:
                self._standing, self._established = _Standing.HELD, True
                self._refused.clear()
                return _checked(verdict)
        raise NoEqualReplica(
            f"validators were lost {MAX_LOSSES} times under one round of this session; send it again later"
        )

    def close(self) -> None:
        """Free the session on its validator."""
        if self._port is not None:
            self._port.close(self._header(round_number=0))
            self._port = None

    async def _ask(self, port: ValidatorPort, round_: Round) -> Verdict:
        verify = Verify(round_.tree)
        if self._standing is _Standing.HELD:
            return await port.ask(self._round_header(round_), verify)
        # Trying again after a refusal is the same opening still.
        self._ledger.reopens += self.epoch > 0 and not self._last_was_refused
        self._last_was_refused = False
        self.epoch += 1
        self.changed_replica |= self._established and port.info.numerics_id != self.info.numerics_id
        self.info = port.info
        if self._standing is _Standing.LEASED:
            return await port.ask(self._round_header(round_), verify, resume=True)
        request = self._facts.request
        opening = OpenTarget(
            tokens=tuple(self._facts.tokens),
            prompt_length=len(request.prompt),
            sampling=request.sampling,
            seed=request.seed,
            choice=request.choice,
            tenant=request.tenant,
            cache_salt=request.cache_salt,
            # It may have loaded another model since it was picked.
            numerics_id=port.info.numerics_id,
            first=verify,
        )
        return await port.ask(self._round_header(round_), opening)

    def _new_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._facts.settings.reopen_deadline_s

    def _deadline_after(self, refusal: OutriderError) -> float:
        """A session that was open waits to be reopened, a new one for room and for nothing else."""
        if self._established:
            return self._new_deadline()
        patient = isinstance(refusal, ResourceExhausted)
        now_s = asyncio.get_running_loop().time()
        return now_s + (self._facts.settings.validator_wait_s if patient else 0.0)

    async def _refused_with(self, refusal: OutriderError, deadline: float) -> None:
        """A validator does not take the session: another may, or the same a little later.

        Raises the refusal when neither does.
        """
        if self._port is not None:
            self._refused.add(self._port.address)
        self._last_was_refused = True
        self._port, self._standing = None, _Standing.UNOPENED
        if any(port.address not in self._refused for port in self._equal_ports()):
            return
        await self._facts.waiting.wait(refusal, deadline - asyncio.get_running_loop().time())
        self._refused.clear()

    async def _next_port(self, deadline: float) -> ValidatorPort:
        """A validator that may go on with the session; waits for one until the deadline."""
        while True:
            ports = [port for port in self._equal_ports() if port.address not in self._refused]
            same = [port for port in ports if self._is_same_process(port)]
            if same and self._standing is not _Standing.UNOPENED:
                self._standing = _Standing.LEASED
                return same[0]
            if ports:
                self._standing = _Standing.UNOPENED
                return ports[0]
            try:
                async with asyncio.timeout_at(deadline):
                    await self._facts.workers.changed()
            except TimeoutError:
                break
        if self._facts.settings.failover == "any" and (others := self._facts.workers.validators()):
            self._standing = _Standing.UNOPENED
            return others[0]
        raise NoEqualReplica(
            f"the validator is lost, and no other with numerics id {self.info.numerics_id} was ready within "
            f"{self._facts.settings.reopen_deadline_s:g} s; send the request again",
            retry_after_s=1.0,
        )

    def _equal_ports(self) -> Sequence[ValidatorPort]:
        # After a change of replica the session goes on where it stands; its promise is gone anyway.
        return self._facts.workers.validators(numerics_id=self.info.numerics_id)

    def _is_same_process(self, port: ValidatorPort) -> bool:
        return port.info.instance_id == self.info.instance_id

    def _leave_if_draining(self) -> None:
        """Move elsewhere while there is time; without an equal replica the rounds until the end are used."""
        port = self._port
        if port is None or not port.draining or self._standing is not _Standing.HELD:
            return
        others = [each for each in self._equal_ports() if not self._is_same_process(each)]
        if others:
            port.close(self._header(round_number=0))
            self._port, self._standing = others[0], _Standing.UNOPENED

    def _round_header(self, round_: Round) -> Header:
        return self._header(round_.number, round_.traceparent, round_.tracestate)

    def _header(self, round_number: int, traceparent: str = "", tracestate: str = "") -> Header:
        return Header(
            session=self._facts.session,
            epoch=self.epoch,
            round=round_number,
            base_length=len(self._facts.tokens),
            traceparent=traceparent,
            tracestate=tracestate,
        )


def _checked(verdict: Verdict) -> Verdict:
    """A verdict that commits nothing and ends nothing would be asked for again for ever."""
    if not verdict.committed and verdict.finish_reason is None:
        raise ProtocolViolation("the validator committed no token; its log may say why")
    return verdict
