"""One generation: propose, verify, commit, again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from outrider.rpc.errors import Internal, InvalidArgument, OutriderError, to_failure
from outrider.rpc.interceptors import as_outrider_error
from outrider.sampling.acceptance import FinishReason
from outrider.telemetry import get_logger
from outrider.wire.generation import DraftSource
from outrider.wire.scheduler import Committed, Finished, GenerateEvent, Started
from outrider.wire.validator import Verdict
from services.scheduler.admission import Plan
from services.scheduler.control.control import SessionControl
from services.scheduler.drafting import Draft, Drafting
from services.scheduler.ports import ValidatorPort
from services.scheduler.rounds import Ledger, RoundRecord
from services.scheduler.sources import SessionFacts, Sources
from services.scheduler.spans import RoundSpan, SessionSpan
from services.scheduler.target import Round, Target

log = get_logger(__name__)


class Session:
    """A session and its one coroutine, `run`. Everything it knows is a mirror: the validator commits.

    Args:
        facts: what it was asked for; the session owns `facts.tokens`.
        plan: how much it speculates.
        port: the validator that it begins on.
        span: its trace; ended by `close`.
        control: chooses each round's proposal.
    """

    def __init__(
        self,
        facts: SessionFacts,
        plan: Plan,
        port: ValidatorPort,
        span: SessionSpan,
        control: SessionControl,
    ) -> None:
        self.id = facts.session
        self.ledger = Ledger()
        self._facts = facts
        self._target = Target(facts, self.ledger, port)
        self._sources = Sources(plan.source if plan.k else DraftSource.NONE, facts)
        self._drafting = Drafting(facts, plan, self._sources, control, self.ledger)
        self._span = span
        self._control = control
        self._meter = facts.meter
        self._round = 0
        # Output tokens that another scheduler delivered.
        self._num_before = len(facts.request.output_so_far)
        # The round under way; cancelled when the session ends from outside.
        self._step: asyncio.Future[Committed] | None = None
        self._in_flight = False
        # Set by the last verdict, or by `finish`.
        self._finished: Finished | None = None
        self._shortened = False
        self._draft_status = ""
        self._closed = False

    @property
    def num_output(self) -> int:
        """Output tokens that are committed."""
        return len(self._facts.tokens) - len(self._facts.request.prompt)

    async def run(self) -> AsyncGenerator[GenerateEvent, None]:
        """The events of the session.

        Raises:
            OutriderError: before Started; afterwards an error is the last event.
        """
        started = False
        try:
            self._begin_step()
            while self._step is not None:
                committed = await self._unless_shortened(self._step)
                # Workers are idle while a round is delivered: the next one is asked for first.
                self._begin_step()
                if not started:
                    started = True
                    yield Started(self.id, self._target.info.numerics_id, self._target.info.exactness)
                if committed is not None and committed.tokens:
                    yield committed
            if self._finished is not None:
                yield self._finished
        except Exception as error:
            known = self._explained(error)
            self._span.failed(known.reason)
            if not started:
                raise known from error
            yield to_failure(known)
        finally:
            self.close()

    async def step(self) -> Committed:
        """One round."""
        self._round += 1
        span = self._span.begin_round(self._round, len(self._facts.tokens))
        started_s = time.monotonic()
        try:
            draft = await self._drafting.draft(self._round, self._target.info, span)
            verdict = await self._verify(draft, span)
            return self._commit(draft, verdict, span, started_s)
        finally:
            span.end()

    def finish(self, kept_length: int, reason: FinishReason) -> Finished:
        """End the session at `kept_length` output tokens, also when it has just ended by itself.

        Raises:
            InvalidArgument: more than what was committed.
        """
        if kept_length > self.num_output:
            raise InvalidArgument(
                f"kept_length is {kept_length}, but only {self.num_output} output tokens were delivered",
                field="kept_length",
            )
        if self._in_flight:
            self.ledger.discarded_rounds += 1
        self._shortened = True
        kept = max(0, kept_length - self._num_before)
        # One that had ended by itself has been kept already, as long as it was.
        if self._finished is None and reason is FinishReason.STOP_STRING:
            self._sources.finished(kept_length)
        self._finished = self._end(reason, kept)
        self._meter.cut(kept)
        self.close()
        return self._finished

    def close(self) -> None:
        """Free the session on both sides, at once."""
        if self._closed:
            return
        self._closed = True
        if self._step is not None:
            self._step.add_done_callback(_seen)
            self._step.cancel()
        self._target.close()
        self._draft_status = self._status_of_drafts()
        self._sources.close()
        self._control.close()
        counters = self._finished.counters if self._finished else self.ledger.counters()
        reason = self._finished.finish_reason if self._finished else None
        self._span.end(reason, counters, self._target.info)
        self._meter.close(counters)

    async def _verify(self, draft: Draft, span: RoundSpan) -> Verdict:
        self._in_flight = True
        try:
            with span.verifying(self._target.address, self._meter.target) as headers:
                started_s = time.monotonic()
                verdict = await self._target.verify(Round(self._round, draft.tree, *headers))
                self._meter.verified(verdict, started_s)
                self._control.verified(verdict, len(self._facts.tokens))
                return verdict
        finally:
            self._in_flight = False

    def _commit(self, draft: Draft, verdict: Verdict, span: RoundSpan, started_s: float) -> Committed:
        self._facts.tokens.extend(verdict.committed)
        self._sources.observe(verdict.committed)
        record = RoundRecord(
            committed=len(verdict.committed),
            accepted=verdict.accepted,
            raw_accepted=verdict.raw_accepted,
            drafted=verdict.drafted,
            prefill_only=verdict.prefill_only,
            source=draft.source if verdict.drafted else DraftSource.NONE,
            # The target may have left some of it out.
            depth=min(draft.tree.depth, verdict.drafted),
            parts=draft.parts(verdict.drafted, verdict.accepted, verdict.raw_accepted),
        )
        self.ledger.apply(record)
        self._meter.applied(record, started_s)
        self._drafting.learn(draft, verdict.committed, record, started_s)
        span.committed(draft.source, self._target.epoch, verdict)
        if verdict.finish_reason is not None:
            self._finished = self._end(verdict.finish_reason)
            self._sources.finished(self.num_output)
        return Committed(verdict.committed, verdict.logprobs)

    def _end(self, reason: FinishReason, kept: int | None = None) -> Finished:
        return Finished(
            finish_reason=reason,
            counters=self.ledger.counters(kept),
            numerics_id=self._target.info.numerics_id,
            changed_replica=self._target.changed_replica,
            draft_status=self._status_of_drafts(),
            costs=self._meter.costs,
        )

    def _status_of_drafts(self) -> str:
        return self._sources.status or self._draft_status

    def _begin_step(self) -> None:
        """Begin the next round, unless the session has ended."""
        self._step = None if self._finished is not None else asyncio.ensure_future(self.step())

    async def _unless_shortened(self, step: asyncio.Future[Committed]) -> Committed | None:
        """What the step gives; None when `finish` came first, and the step was dropped."""
        try:
            committed = await step
        except asyncio.CancelledError:
            # By `finish`, or because this very task is cancelled: only the second one goes on upwards.
            task = asyncio.current_task()
            if not self._shortened or (task is not None and task.cancelling()):
                raise
            return None
        except Exception:
            if not self._shortened:
                raise
            return None  # nobody wants what it failed at
        return None if self._shortened else committed

    def _explained(self, error: Exception) -> OutriderError:
        known = as_outrider_error(error)
        if known is not None:
            return known
        log.error("session_failed", session=self.id.hex(), exc_info=error)
        return Internal("internal error of the scheduler; its log has the details")


def _seen(step: asyncio.Future[Committed]) -> None:
    """A round that nobody waits for any more may fail in silence."""
    if not step.cancelled():
        step.exception()
