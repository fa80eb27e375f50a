"""The proposal of one round: what the control chooses of what the sources have."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from outrider.sampling.tree import DraftTree
from outrider.wire.generation import DraftSource
from services.scheduler.admission import Plan, depth_of_round
from services.scheduler.control.choice import Choice, Judged, Outcome, View
from services.scheduler.rounds import Ledger, Part, RoundRecord
from services.scheduler.sources import Ask, Found, ModelSource, SessionFacts, Sources

if TYPE_CHECKING:
    from outrider.wire.worker import ModelInfo
    from services.scheduler.control.control import SessionControl
    from services.scheduler.spans import RoundSpan


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


class Drafting:
    """Asks the sources of one session, and tells its control what became of each choice.

    Args:
        facts: of the session.
        plan: how much it speculates.
        sources: to choose from.
        control: chooses.
        ledger: counts proposals that did not come.
    """

    def __init__(
        self, facts: SessionFacts, plan: Plan, sources: Sources, control: SessionControl, ledger: Ledger
    ) -> None:
        self._facts = facts
        self._plan = plan
        self._sources = sources
        self._control = control
        self._ledger = ledger
        self._meter = facts.meter

    async def draft(self, number: int, info: ModelInfo, span: RoundSpan) -> Draft:
        """What the control chooses of what the sources have, for the round of this number.

        Args:
            number: from 1.
            info: of the target.
            span: of the round.
        """
        num_output = len(self._facts.tokens) - len(self._facts.request.prompt)
        most = depth_of_round(
            self._plan,
            info,
            length=len(self._facts.tokens),
            num_output=num_output,
            max_tokens=self._facts.request.sampling.max_tokens,
        )
        first = number == 1
        if not most:
            span.drafted(0, self._plan.w, "")
            return Draft(DraftTree.empty())
        model = self._sources.model
        ask = Ask(number, most, self._plan.w, first)
        if first and model is not None:
            # Nobody waits in the first round: the model hears of the session, and reads the prompt.
            return await self._opening(model, ask, span)
        started_s = time.monotonic()
        found = await self._sources.look_up(ask)
        if self._sources.looks_up:
            self._meter.looked_up(started_s)
        name = model.model if model is not None else ""
        view, choice = self._control.choose(
            most,
            length=len(self._facts.tokens),
            offers=[each.offer for each in found],
            draft=name,
            num_behind=model.num_behind if model is not None else 0,
            left=self._facts.request.sampling.max_tokens - num_output,
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
        if model is None and not found and self._plan.source is not None:
            # The one source that may draft was asked, and has nothing.
            with span.drafting(self._plan.source, most, self._plan.w, self._meter.drafts):
                pass
            span.drafted(most, self._plan.w, "")
            return draft
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
            self._meter.waited(started_s)
        if tree is None:
            self._ledger.missed_proposals += 1
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

    def learn(self, draft: Draft, committed: Sequence[int], record: RoundRecord, started_s: float) -> None:
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
