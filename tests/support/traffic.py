"""Random traffic from one seed: what is asked, when, how much is drafted, and who leaves."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from outrider.client import (
    Completion,
    Delta,
    DraftSource,
    Final,
    OutriderClient,
    SamplingParameters,
    Speculation,
)
from outrider.client.completion import collect
from outrider.rpc.errors import ResourceExhausted

NUM_CLIENTS = 16
# Beginnings that several requests share, as system prompts are: 20 to 200 tokens.
HEADERS = (
    "",
    "You are a careful assistant. Answer in one short paragraph, and say so when you do not know.\n\n",
    "".join(
        f"{number}. The river runs past the old mill, and the lights of the town lie on it.\n"
        for number in range(10)
    ),
)
TAILS = (
    "def fibonacci(n):\n",
    '{"users": [{"name": "Ada", "born": 1815}, {"name": "Alan", "born": ',
    "Q: What is the capital of France?\nA:",
    "Once upon a time, in a village by the sea,",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,",
    "Dear Sir or Madam,\n\nI am writing to",
)


@dataclass(frozen=True)
class Request:
    """What an answer is a function of."""

    prompt: str
    sampling: SamplingParameters
    seed: int


def requests(rng: random.Random, count: int) -> list[Request]:
    """Mixed lengths, temperatures, filters, penalties and logprobs; no two have one seed."""
    return [
        Request(HEADERS[index % len(HEADERS)] + rng.choice(TAILS), _sampling(rng), seed=1000 + index)
        for index in range(count)
    ]


def _sampling(rng: random.Random) -> SamplingParameters:
    penalised = rng.random() < 0.5
    return SamplingParameters(
        temperature=rng.choice((0.0, 0.0, 0.7, 1.0, 1.3)),
        top_p=rng.choice((1.0, 0.9)),
        top_k=rng.choice((0, 40)),
        min_p=rng.choice((0.0, 0.05)),
        repetition_penalty=1.2 if penalised else 1.0,
        presence_penalty=rng.choice((0.0, 0.6)) if penalised else 0.0,
        frequency_penalty=rng.choice((0.0, 0.4)) if penalised else 0.0,
        logit_bias=((198, -2.0),) if penalised else (),
        max_tokens=rng.choice((12, 24, 40, 64)),
        min_tokens=rng.choice((0, 12)),
        logprobs=rng.choice((0, 2)),
    )


def speculation(rng: random.Random) -> Speculation:
    """k 0 to 8, w 1 to 3, any source."""
    return Speculation(
        k=rng.randrange(9),
        w=rng.randrange(1, 4),
        source=rng.choice((DraftSource.MODEL, DraftSource.NGRAM, None)),
    )


@dataclass
class Seen:
    """What the clients saw."""

    finished: list[tuple[Request, Speculation, Completion]] = field(default_factory=list)
    num_left: int = 0
    num_refused: int = 0

    @property
    def num_drafted(self) -> int:
        return sum(answer.final.counters.drafted for _, _, answer in self.finished)

    @property
    def num_accepted(self) -> int:
        return sum(answer.final.counters.accepted for _, _, answer in self.finished)


class _Left(Exception):
    """The client has gone."""


@dataclass
class Traffic:
    """Clients that ask at random times, and of whom some leave before the end."""

    client: OutriderClient
    requests: Sequence[Request]
    seed: int
    seen: Seen = field(default_factory=Seen)
    # Requests in random order; when all were asked, all over again.
    _deck: list[Request] = field(default_factory=list)
    # Requests that have not been answered to the end yet, and that nobody asks now.
    _unanswered: list[Request] = field(init=False)

    def __post_init__(self) -> None:
        self._unanswered = list(self.requests)

    async def run(self, duration_s: float) -> Seen:
        """Begin new requests for so long; then ask what was not answered yet, to the last answer."""
        until_s = time.monotonic() + duration_s
        async with asyncio.TaskGroup() as group:
            for number in range(NUM_CLIENTS):
                group.create_task(self._one(random.Random(f"{self.seed}:{number}"), until_s))
        return self.seen

    async def _one(self, rng: random.Random, until_s: float) -> None:
        while time.monotonic() < until_s:
            await asyncio.sleep(rng.expovariate(4.0))
            leave_after = rng.choice((0, 1, 3, 8)) if rng.random() < 0.25 else None
            await self._ask(self._next(rng), speculation(rng), leave_after, until_s)
        while self._unanswered:
            await self._ask(self._unanswered[0], speculation(rng), None)

    def _next(self, rng: random.Random) -> Request:
        if not self._deck:
            self._deck = rng.sample(self.requests, len(self.requests))
        return self._deck.pop()

    async def _ask(
        self, request: Request, how: Speculation, leave_after: int | None, until_s: float = math.inf
    ) -> None:
        """One request; a refusal for want of memory is waited out until then."""
        awaited = request in self._unanswered
        if awaited:
            self._unanswered.remove(request)
        answer = None
        while answer is None and time.monotonic() < until_s:
            begun: list[Delta] = []
            try:
                answer = await self._answer(request, how, leave_after, begun)
            except _Left:
                self.seen.num_left += 1
                break
            except ResourceExhausted as refusal:
                await self._wait_as_told(refusal, begun)
        if answer is not None:
            self.seen.finished.append((request, how, answer))
        elif awaited:
            self._unanswered.append(request)

    async def _wait_as_told(self, refusal: ResourceExhausted, begun: list[Delta]) -> None:
        assert not begun, "an answer under way was refused"
        assert refusal.retry_after_s is not None
        self.seen.num_refused += 1
        await asyncio.sleep(min(refusal.retry_after_s, 0.25))

    async def _answer(
        self, request: Request, how: Speculation, leave_after: int | None, begun: list[Delta]
    ) -> Completion:
        events = self.client.generate(
            request.prompt, sampling=request.sampling, seed=request.seed, speculation=how
        )

        async def noted():
            async for event in events:
                if isinstance(event, Delta):
                    begun.append(event)
                yield event
                if leave_after is not None and len(begun) > leave_after and not isinstance(event, Final):
                    raise _Left

        async with aclosing(events), aclosing(noted()) as read:
            if leave_after == 0:
                try:
                    async with asyncio.timeout(0.05):  # before the first token, perhaps in the prompt
                        return await collect(read)
                except TimeoutError:
                    raise _Left from None
            return await collect(read)
