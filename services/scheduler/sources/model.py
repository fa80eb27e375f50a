"""Proposals of a draft model behind DraftService, asked with a bounded wait.

A draft only ever costs a session speed: it is mirrored, never trusted, and left alone when it keeps failing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from outrider.rpc.errors import OutriderError
from outrider.sampling.tree import DraftTree
from outrider.wire.draft import OpenDraft, Proposal, Propose
from outrider.wire.generation import DraftSource
from outrider.wire.worker import MAX_NODES, Header
from services.scheduler.ports import DraftPort, PeerLost, StaleSession
from services.scheduler.sources.source import Ask, SessionFacts

MAX_FAILURES = 2
"""Errors and stale answers after which a session leaves draft models alone."""
RETRY_AFTER_S = 1.0
"""Pause after a refusal for load that names none."""
PROMPT_STRETCH = 256
"""Tokens that a draft reads in about the time that one proposal may take."""

ABSENT = "absent"
SLOW = "slow"


class ModelSource:
    """One session's side of the conversation with a draft worker.

    The first round waits for no draft. Where the two have devices of their own the opening is sent in it and
    waited for in the second: the draft's prefill runs beside the target's. Where they share cores that would
    delay the first token, so the opening is sent after it, with the second round's question in it; that round
    waits while the prompt is read, since on shared cores rounds without drafts would slow the reading down.

    A late answer is dropped, and the next Propose carries all that was committed meanwhile.
    """

    kind: ClassVar[DraftSource] = DraftSource.MODEL

    def __init__(self, facts: SessionFacts) -> None:
        self._facts = facts
        self._loop = asyncio.get_running_loop()
        # The worker that holds the session as we believe; None: to be opened.
        self._port: DraftPort | None = None
        self._epoch = 0
        # Tokens that this worker was sent.
        self._num_told = 0
        self._pending: set[asyncio.Future[Proposal]] = set()
        self._opening: asyncio.Future[Proposal] | None = None
        self._waited_for_opening = False
        self._num_failures = 0
        self._not_before = 0.0
        # The draft model that was picked for the session, where there are several.
        self._wanted: str | None = None
        self.num_dropped = 0
        # Of the last proposal that was used: how likely each of its tokens is, if the draft says so.
        self.confidences: tuple[float, ...] = ()
        self.status = ""

    @property
    def model(self) -> str:
        """The draft model that a round would ask; empty: there is none at the moment."""
        if self._port is not None and self._port.ready:
            return self._port.info.model
        port = self._next_port() if self._may_open else None
        return port.info.model if port else ""

    @property
    def num_behind(self) -> int:
        """Tokens of the session that the draft has not been told."""
        return len(self._facts.tokens) - self._num_told

    @property
    def _may_open(self) -> bool:
        return self._num_failures < MAX_FAILURES and self._loop.time() >= self._not_before

    async def propose(self, ask: Ask) -> DraftTree | None:
        after = self._facts.settings.draft_opens == "after"
        if after and ask.first:
            return DraftTree.empty()
        if self._port is None or not self._port.ready:
            opened = self._open(ask, waits=after)
            if opened and after:
                return await self._first_proposal(ask)
            return DraftTree.empty() if opened and ask.first else None
        deadline = self._loop.time() + self._port.latency.bound_s(ask.k)
        if not await self._has_room(deadline):
            return None
        return await self._ask(self._port, ask, deadline)

    def observe(self, committed: Sequence[int]) -> None:
        """The next Propose tells the draft."""

    def close(self) -> None:
        if self._port is not None:
            self._port.close(self._header(round_number=0))
            self._port = None

    def _open(self, ask: Ask, *, waits: bool) -> bool:
        """Send the opening to a draft that is ready; False when there is none to ask.

        With `waits` its answer is this round's; else nobody waits for it in this round.
        """
        self.close()
        if not self._may_open:
            return False
        port = self._next_port()
        if port is None:
            self.status = self._facts.workers.why_no_draft()
            return False
        request = self._facts.request
        self._epoch += 1
        opening = OpenDraft(
            tokens=tuple(self._facts.tokens),
            prompt_length=len(request.prompt),
            sampling=request.sampling,
            seed=request.seed,
            choice=request.choice,
            end_ids=tuple(sorted(self._facts.end_ids)),
            tenant=request.tenant,
            cache_salt=request.cache_salt,
            # The prompt's own pass yields one token for nothing; without a round nothing would be prefilled.
            first=_question((), ask) if waits else Propose(committed=(), k=1),
        )
        try:
            self._opening = self._send(port, opening, ask)
        except PeerLost:
            self.status = ABSENT
            return False
        self._port = port
        self._waited_for_opening = waits
        return True

    async def _first_proposal(self, ask: Ask) -> DraftTree | None:
        """The answer to the opening, for which a long prompt is read: as much time for each stretch of it."""
        port, opening = self._port, self._opening
        if port is None or opening is None:
            return None
        num_stretches = 1 + len(self._facts.tokens) // PROMPT_STRETCH
        deadline = self._loop.time() + num_stretches * port.latency.bound_s(ask.k)
        return await self._answer(port, opening, ask, deadline)

    async def _has_room(self, deadline: float) -> bool:
        """Wait until the worker takes another round: for the opening once, for late answers each time."""
        if self._opening is not None and not self._opening.done():
            if self._waited_for_opening:
                self.status = SLOW
                return False
            self._waited_for_opening = True
            await self._wait({self._opening}, deadline)
        while self._port is not None and self._port.room(self._facts.session) <= 0:
            if not self._pending or not await self._wait(self._pending, deadline):
                self.status = SLOW
                return False
        if self._opening is not None and not self._opening.done():
            self.status = SLOW
            return False
        return self._port is not None

    async def _ask(self, port: DraftPort, ask: Ask, deadline: float) -> DraftTree | None:
        new = tuple(self._facts.tokens[self._num_told :])
        try:
            answer = self._send(port, _question(new, ask), ask)
        except PeerLost:
            self._port, self.status = None, ABSENT
            return None
        return await self._answer(port, answer, ask, deadline)

    async def _answer(
        self, port: DraftPort, answer: asyncio.Future[Proposal], ask: Ask, deadline: float
    ) -> DraftTree | None:
        """What may be used of an answer that comes in time."""
        if not await self._wait({answer}, deadline):
            port.latency.waited_in_vain()
            self.status = SLOW
            return None
        if answer.cancelled() or answer.exception() is not None:
            return None
        return self._usable(answer.result(), ask)

    def _send(self, port: DraftPort, command: OpenDraft | Propose, ask: Ask) -> asyncio.Future[Proposal]:
        """Raises PeerLost."""
        header = self._header(ask.round, ask.traceparent, ask.tracestate)
        answer = port.ask(header, command)
        num_behind, self._num_told = self.num_behind, len(self._facts.tokens)
        # How long a prompt takes says nothing of a proposal, and so does a proposal behind another.
        timed = isinstance(command, Propose) and not self._pending
        self._pending.add(answer)
        started_s = self._loop.time() if timed else None
        answer.add_done_callback(partial(self._answered, port, self._epoch, started_s, num_behind))
        return answer

    def _answered(
        self,
        port: DraftPort,
        epoch: int,
        started_s: float | None,
        num_behind: int,
        answer: asyncio.Future[Proposal],
    ) -> None:
        """Runs for each answer, in time or late, before whoever waits for it goes on."""
        self._pending.discard(answer)
        if answer.cancelled() or epoch != self._epoch:
            return
        error = answer.exception()
        if error is None:
            self._facts.meter.proposed(answer.result(), timed=started_s is not None)
            if started_s is not None:
                took_s, depth = self._loop.time() - started_s, answer.result().tree.depth
                port.latency.answered(took_s, depth)
                if self._facts.control is not None:
                    self._facts.control.proposed(port.info.model, took_s, depth=depth, num_behind=num_behind)
            return
        self._port = None
        match error:
            case PeerLost():
                self.status = ABSENT
            case StaleSession():
                self._epoch = max(self._epoch, error.epoch)
                # It may hold the session still, at another length.
                port.close(self._header(round_number=0))
                self._num_failures += 1
                self.status = "refused:the draft lost step with the session"
            case OutriderError(retryable=True):
                self._not_before = self._loop.time() + (error.retry_after_s or RETRY_AFTER_S)
                self.status = f"refused:{error.message}"
            case _:
                self._num_failures += 1
                self.status = f"refused:{error}"

    async def _wait(self, answers: set[asyncio.Future[Proposal]], deadline: float) -> bool:
        """Whether one of them came in time; a late one is not cancelled, since the worker owes it still."""
        timeout = max(0.0, deadline - self._loop.time())
        done, _ = await asyncio.wait(answers, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)

    def _next_port(self) -> DraftPort | None:
        """A draft for the session: of the model that the control picks, where there are several."""
        workers, control = self._facts.workers, self._facts.control
        models = workers.draft_models()
        if len(models) < 2 or control is None:
            return workers.draft()
        self._wanted = self._wanted if self._wanted in models else control.pick_draft(models)
        return workers.draft(self._wanted)

    def _usable(self, proposal: Proposal, ask: Ask) -> DraftTree | None:
        """What may be put to the target: known ids, not deeper, wider or larger than asked."""
        tree = proposal.tree
        if tree.num_nodes > MAX_NODES:
            self.num_dropped += 1
            self.status = f"refused:a proposal of {tree.num_nodes} nodes, the limit is {MAX_NODES}"
            return None
        usable = tree.limited(ask.k - len(ask.prefix)).within(self._facts.vocab_size)
        if len(usable.leaves) > ask.w:
            usable = DraftTree.from_candidates(usable.candidates()[: ask.w])
        self.num_dropped += usable.num_nodes < tree.num_nodes
        self.confidences = proposal.confidences[: usable.num_nodes]
        return usable

    def _header(self, round_number: int, traceparent: str = "", tracestate: str = "") -> Header:
        return Header(
            session=self._facts.session,
            epoch=self._epoch,
            round=round_number,
            base_length=len(self._facts.tokens),
            traceparent=traceparent,
            tracestate=tracestate,
        )


def _question(committed: tuple[int, ...], ask: Ask) -> Propose:
    return Propose(committed, k=ask.k, w=ask.w, prefix=ask.prefix, min_confidence=ask.min_confidence)
