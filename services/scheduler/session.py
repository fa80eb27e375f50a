"""One generation: propose, verify, commit, again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from outrider.rpc.errors import Internal, InvalidArgument, OutriderError, to_failure
from outrider.rpc.interceptors import as_outrider_error
from outrider.sampling.acceptance import FinishReason
from outrider.sampling.tree import DraftTree
from outrider.telemetry import get_logger
from outrider.wire.generation import DraftSource
from outrider.wire.scheduler import Committed, Finished, GenerateEvent, Started
from outrider.wire.validator import Verdict
from services.scheduler.admission import Plan, depth_of_round
from services.scheduler.control.choice import Choice, Judged, Outcome, View
from services.scheduler.control.control import SessionControl
from services.scheduler.ports import ValidatorPort
from services.scheduler.rounds import Ledger, Part, RoundRecord
from services.scheduler.sources import Ask, Found, ModelSource, SessionFacts, Sources
from services.scheduler.spans import RoundSpan, SessionSpan
from services.scheduler.target import Round, Target

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Draft:
    """What is put to the target in one round: tokens of a lookup, and behind them those of the model."""

    tree: DraftTree
    # Who proposed most of it.
    source: DraftSource = DraftSource.NONE
    # None: nobody was asked.
    view: View | None = None
    # What the lookups had, as the view says it.
    found: tuple[Found, ...] = ()
    choice: Choice = Choice()
    num_lookup: int = 0
    lookup: DraftSource | None = None
    model_answered: bool = False
    # Of the model's part, token by token.
    confidences: tuple[float, ...] = ()
    waited_s: float = 0.0

    def parts(self, drafted: int, accepted: int, raw_accepted: int) -> tuple[Part, ...]:
        """What was put to the target and accepted, source by source."""
        parts = []
        for source, first, last in (
            (self.lookup, 0, self.num_lookup),
            (DraftSource.MODEL, self.num_lookup, drafted),
        ):
            size = max(0, min(last, drafted) - first)
            if source is not None and size:
                parts.append(
                    Part(
                        source,
                        drafted=size,
                        depth=min(size, self.tree.depth - first),
                        accepted=min(size, max(0, accepted - first)),
                        raw_accepted=min(size, max(0, raw_accepted - first)),
                    )
                )
        return tuple(parts)


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
        self._plan = plan
        self._target = Target(facts, self.ledger, port)
        self._sources = Sources(plan.source if plan.k else DraftSource.NONE, facts)
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
            draft = await self._draft(span)
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

    async def _draft(self, span: RoundSpan) -> Draft:
        """What the control chooses of what the sources have."""
        most = depth_of_round(
            self._plan,
            self._target.info,
            length=len(self._facts.tokens),
            num_output=self.num_output,
            max_tokens=self._facts.request.sampling.max_tokens,
        )
        first = self._round == 1
        if not most:
            span.drafted(0, self._plan.w, "")
            return Draft(DraftTree.empty())
        model = self._sources.model
        ask = Ask(self._round, most, self._plan.w, first)
        if first and model is not None:
            # Nobody waits in the first round: the model hears of the session, and reads the prompt.
            return await self._opening(model, ask, span)
        started_s = time.monotonic()
        found = await self._sources.look_up(ask)
        if found:
            self._meter.asked(found[0].offer.source, started_s)
        name = model.model if model is not None else ""
        view, choice = self._control.choose(
            most,
            length=len(self._facts.tokens),
            offers=[each.offer for each in found],
            draft=name,
            num_behind=model.num_behind if model is not None else 0,
            left=self._facts.request.sampling.max_tokens - self.num_output,
        )
        prefix = next((each.tokens for each in found if each.offer.source is choice.lookup), ())
        draft = Draft(
            DraftTree.chain(prefix[: choice.num_lookup]),
            choice.lookup or DraftSource.NONE,
            view,
            tuple(found),
            choice,
            choice.num_lookup,
            choice.lookup,
        )
        if draft.num_lookup:
            with span.drafting(draft.source, draft.num_lookup, 1, self._meter.drafts):
                pass  # it was at hand
        status = ""
        # A model that was wanted and is not there is asked, too: it says why.
        if model is not None and (choice.num_model or (not name and not choice.k)):
            # A policy that had something to choose from, and did not, is not overruled.
            draft, status = await self._drafted_by(
                model, ask, draft, span, falls_back=bool(choice.num_model) or not found
            )
        span.drafted(max(choice.k, draft.tree.depth), self._plan.w, status)
        return draft

    async def _opening(self, model: ModelSource, ask: Ask, span: RoundSpan) -> Draft:
        draft, status = await self._drafted_by(model, ask, Draft(DraftTree.empty()), span, falls_back=True)
        span.drafted(ask.k, self._plan.w, status)
        return draft

    async def _drafted_by(
        self, model: ModelSource, ask: Ask, draft: Draft, span: RoundSpan, *, falls_back: bool
    ) -> tuple[Draft, str]:
        """What the lookup's part becomes with the model's behind it, and why the model has none."""
        choice = draft.choice
        prefix = draft.tree.tokens
        k = choice.k or ask.k
        with span.drafting(DraftSource.MODEL, k, ask.w, self._meter.drafts) as headers:
            started_s = time.monotonic()
            tree = await model.propose(
                replace(
                    ask,
                    k=k,
                    prefix=prefix,
                    min_confidence=choice.min_confidence,
                    traceparent=headers.traceparent,
                    tracestate=headers.tracestate,
                )
            )
        waited_s = time.monotonic() - started_s
        if not ask.first:  # in which nobody waits
            self._meter.asked(DraftSource.MODEL, started_s)
        if tree is None:
            self.ledger.missed_proposals += 1
            draft = replace(draft, waited_s=waited_s)
            return await self._fallen_back(ask, draft) if falls_back else draft, model.status
        source = DraftSource.MODEL if tree.num_nodes else draft.source
        joined = tree.behind(prefix) if prefix else tree
        # In the first round its answer is empty, and says nothing.
        return replace(
            draft,
            tree=joined,
            source=source,
            model_answered=not ask.first,
            confidences=model.confidences,
            waited_s=waited_s,
        ), ""

    async def _fallen_back(self, ask: Ask, draft: Draft) -> Draft:
        """The round of a model that did not answer: what a lookup has."""
        found = [] if draft.num_lookup else await self._sources.look_up(ask, fallback=True)
        best = max(found, key=lambda each: each.offer.match_length, default=None)
        if best is None:
            return draft
        tokens = best.tokens[: draft.choice.k or ask.k]
        return replace(
            draft,
            tree=DraftTree.chain(tokens),
            source=best.offer.source,
            lookup=best.offer.source,
            num_lookup=len(tokens),
        )

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
        self._learn(draft, verdict.committed, record, started_s)
        span.committed(draft.source, self._target.epoch, verdict)
        if verdict.finish_reason is not None:
            self._finished = self._end(verdict.finish_reason)
            self._sources.finished(self.num_output)
        return Committed(verdict.committed, verdict.logprobs)

    def _learn(self, draft: Draft, committed: Sequence[int], record: RoundRecord, started_s: float) -> None:
        """Tell the control what came of its choice."""
        if draft.view is None or record.prefill_only:
            return
        parts = {part.source: part for part in record.parts}
        lookup = parts.get(draft.choice.lookup) if draft.choice.lookup else None
        model = parts.get(DraftSource.MODEL)
        self._control.applied(
            Outcome(
                draft.view,
                draft.choice,
                tuple(Judged.by(each.tokens, committed) for each in draft.found),
                lookup_drafted=lookup.drafted if lookup else 0,
                lookup_accepted=lookup.raw_accepted if lookup else 0,
                model_drafted=model.depth if model else 0,
                model_accepted=model.raw_accepted if model else 0,
                committed=record.committed,
                seconds=time.monotonic() - started_s,
                model_answered=draft.model_answered,
                confidences=draft.confidences,
            ),
            draft.waited_s,
        )

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
