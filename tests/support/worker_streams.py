"""Streams to a worker, with and without a wire below, and drivers that play the scheduler on them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from outrider.runtime.runtime import Runtime
from outrider.sampling import DraftTree, SamplingParameters, TokenLogprobs, TokenSampler, token_logprobs
from outrider.telemetry import NO_TRACING, Tracing
from outrider.wire.draft import OpenDraft, Proposal, Propose
from outrider.wire.validator import OpenTarget, Verdict, Verify
from outrider.wire.worker import (
    Addressed,
    Close,
    FromWorker,
    GoAway,
    Header,
    Hello,
    Opened,
    Resume,
    SessionError,
    Stale,
    ToWorker,
    Welcome,
)
from outrider.worker.engine import Engine, Limits
from outrider.worker.role import Codec, Role
from outrider.worker.stream import Streams

TIMEOUT_S = 60.0
LIMITS = Limits(token_budget=512, prefill_chunk=64, max_sessions=64, lease_s=5.0)


class PlainCodec:
    """No wire: messages pass as they are."""

    def decode_request(self, message: Any, /) -> ToWorker[Any]:
        return message  # type: ignore[no-any-return]  # it is one

    def encode_response(self, message: FromWorker[Any], /) -> Any:
        return message


class Stream:
    """A scheduler's end of one stream. Events are read one by one, by session."""

    def __init__(self, peer_id: bytes) -> None:
        self.peer_id = peer_id
        self.welcome: Welcome
        self.messages: list[FromWorker[Any]] = []
        self.requests: asyncio.Queue[ToWorker[Any] | None] = asyncio.Queue()
        self._waiting: dict[bytes, asyncio.Queue[Addressed[Any] | Exception]] = {}
        self.ended = asyncio.Event()
        self.error: Exception | None = None
        self._go_away: asyncio.Future[GoAway] = asyncio.get_running_loop().create_future()

    def send(self, *commands: tuple[Header, Any]) -> None:
        self.requests.put_nowait(ToWorker([Addressed(*command) for command in commands]))

    async def next(self, session: bytes) -> Addressed[Any]:
        """The session's next event."""
        async with asyncio.timeout(TIMEOUT_S):
            item = await self._queue(session).get()
        if isinstance(item, Exception):
            raise item
        return item

    def num_unread(self, session: bytes) -> int:
        return self._queue(session).qsize()

    async def until_go_away(self) -> GoAway:
        async with asyncio.timeout(TIMEOUT_S):
            return await self._go_away

    def half_close(self) -> None:
        self.requests.put_nowait(None)

    async def outgoing(self) -> AsyncIterator[ToWorker[Any]]:
        while (message := await self.requests.get()) is not None:
            yield message
            # The reader has come back for more, so it has handed this one on.
            self.requests.task_done()

    def take(self, message: FromWorker[Any]) -> None:
        self.messages.append(message)
        if message.go_away:
            self._go_away.set_result(message.go_away)
        for item in message.events:
            self._queue(item.header.session).put_nowait(item)

    def finish(self, error: Exception | None) -> None:
        self.error = error
        self.ended.set()
        for queue in self._waiting.values():
            queue.put_nowait(error or ConnectionError("the stream has ended"))

    def _queue(self, session: bytes) -> asyncio.Queue[Addressed[Any] | Exception]:
        return self._waiting.setdefault(session, asyncio.Queue())


class Seam:
    """An engine and its streams without a server."""

    def __init__(self, engine: Engine, streams: Streams) -> None:
        self.engine = engine
        self.streams = streams
        self._connected: set[Stream] = set()

    @asynccontextmanager
    async def connect(self, peer_id: bytes | None = None) -> AsyncIterator[Stream]:
        stream = Stream(peer_id or secrets.token_bytes(16))
        stream.requests.put_nowait(ToWorker(hello=Hello(stream.peer_id)))
        welcomed = asyncio.Event()

        async def pump() -> None:
            error: Exception | None = None
            responses = self.streams.serve(stream.outgoing())
            try:
                async for message in responses:
                    if message.welcome:
                        stream.welcome = message.welcome
                        welcomed.set()
                    stream.take(message)
            except Exception as raised:  # noqa: BLE001  # handed to whoever reads
                error = raised
            finally:
                await responses.aclose()
                stream.finish(error)

        task = asyncio.create_task(pump())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await welcomed.wait()
            self._connected.add(stream)
            yield stream
        finally:
            self._connected.discard(stream)
            task.cancel()
            await asyncio.wait([task])

    async def settled(self) -> None:
        """Wait until the engine has applied all that was sent and rests."""
        async with asyncio.timeout(TIMEOUT_S):
            for stream in self._connected:
                if not stream.ended.is_set():
                    await stream.requests.join()
            while await self.engine.call(lambda: sum(len(held.rounds) for held in self.engine._registry)):
                pass
            await self.engine.call(self.engine._tell_load)


@asynccontextmanager
async def seam(
    runtime: Any,
    role_of: Callable[[Runtime], Role],
    *,
    limits: Limits = LIMITS,
    tracing: Tracing = NO_TRACING,
    codec: Codec | None = None,
) -> AsyncIterator[Seam]:
    """An engine over `runtime`, stopped at the end; a crash of its thread fails the test."""
    crashed: list[bool] = []
    engine = Engine(runtime, role_of, limits, tracing=tracing, on_crash=lambda: crashed.append(True))
    engine.start()
    try:
        yield Seam(engine, Streams(engine, codec or PlainCodec()))
    finally:
        engine.stop()
        await asyncio.to_thread(engine.join)
    assert not crashed


class Drafter(Protocol):
    def __call__(self, tokens: Sequence[int]) -> DraftTree: ...


def nothing(tokens: Sequence[int]) -> DraftTree:
    """The draft of plain decoding."""
    return DraftTree.empty()


@dataclass
class Answer:
    """What one generation came to."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


@dataclass
class TargetSession:
    """The scheduler's side of one session at a validator."""

    stream: Stream
    opening: OpenTarget
    id: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    epoch: int = 1
    round: int = 0
    answer: Answer = field(default_factory=Answer)
    traceparent: str = ""

    @property
    def tokens(self) -> list[int]:
        return [*self.opening.tokens, *self.answer.ids]

    @property
    def finished(self) -> bool:
        return bool(self.answer.verdicts) and self.answer.verdicts[-1].finish_reason is not None

    def header(self, round_: int | None = None) -> Header:
        number = self.round if round_ is None else round_
        return Header(self.id, self.epoch, number, len(self.tokens), self.traceparent)

    def open(self, tree: DraftTree | None = None) -> None:
        """Send Open, with a first round when there is a tree."""
        if tree is not None:
            self.round += 1
        first = None if tree is None else Verify(tree)
        reopened = replace(self.opening, tokens=tuple(self.tokens), first=first)
        self.stream.send((self.header(), reopened))

    async def opened(self) -> Opened:
        event = (await self.stream.next(self.id)).event
        assert isinstance(event, Opened), event
        return event

    def verify(self, tree: DraftTree) -> None:
        self.round += 1
        self.stream.send((self.header(), Verify(tree)))

    async def verdict(self) -> Verdict:
        """The answer to the present round, applied."""
        header, event = await self.stream.next(self.id)
        assert isinstance(event, Verdict), event
        assert header == self.header()
        self.answer.verdicts.append(event)
        self.answer.ids.extend(event.committed)
        self.answer.logprobs.extend(event.logprobs)
        return event

    async def run(self, drafter: Drafter = nothing, *, max_rounds: int | None = None) -> Answer:
        """Go on to the end, or for so many rounds."""
        rounds = 0
        while not self.finished and (max_rounds is None or rounds < max_rounds):
            tree = drafter(self.tokens)
            if self.round == 0:
                self.open(tree)
                await self.opened()
            else:
                self.verify(tree)
            await self.verdict()
            rounds += 1
        return self.answer

    def resume(self, stream: Stream) -> None:
        self.stream = stream
        self.epoch += 1
        self.stream.send((self.header(), Resume()))

    def close(self) -> None:
        self.stream.send((self.header(), Close()))

    async def error(self) -> SessionError:
        event = (await self.stream.next(self.id)).event
        assert isinstance(event, SessionError), event
        return event

    async def stale(self) -> Header:
        header, event = await self.stream.next(self.id)
        assert isinstance(event, Stale), event
        return header


def target_session(
    stream: Stream, tokens: Sequence[int], sampling: SamplingParameters, *, seed: int = 7, **options: Any
) -> TargetSession:
    return TargetSession(stream, OpenTarget(tuple(tokens), len(tokens), sampling, seed), **options)


@dataclass
class DraftSession:
    """The scheduler's side of one session at a draft."""

    stream: Stream
    opening: OpenDraft
    id: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    epoch: int = 1
    round: int = 0
    tokens: list[int] = field(default_factory=list)
    traceparent: str = ""

    def __post_init__(self) -> None:
        self.tokens = list(self.opening.tokens)

    def header(self) -> Header:
        return Header(self.id, self.epoch, self.round, len(self.tokens), self.traceparent)

    def open(self) -> None:
        self.stream.send((self.header(), self.opening))

    async def opened(self) -> Opened:
        event = (await self.stream.next(self.id)).event
        assert isinstance(event, Opened), event
        return event

    def ask(self, committed: Sequence[int], k: int, **options: Any) -> None:
        self.round += 1
        self.tokens.extend(committed)
        self.stream.send((self.header(), Propose(tuple(committed), k, **options)))

    async def proposal(self) -> Proposal:
        header, event = await self.stream.next(self.id)
        assert isinstance(event, Proposal), event
        assert header == self.header()
        return event

    async def propose(self, committed: Sequence[int], k: int, **options: Any) -> Proposal:
        self.ask(committed, k, **options)
        return await self.proposal()

    def close(self) -> None:
        self.stream.send((self.header(), Close()))


def draft_session(
    stream: Stream,
    tokens: Sequence[int],
    sampling: SamplingParameters,
    *,
    seed: int = 7,
    end_ids: tuple[int, ...] = (),
    **options: Any,
) -> DraftSession:
    opening = OpenDraft(tuple(tokens), len(tokens), sampling, seed, end_ids=end_ids)
    return DraftSession(stream, opening, **options)


def expected(
    logits: Callable[[Sequence[int]], np.ndarray],
    tokens: Sequence[int],
    sampling: SamplingParameters,
    *,
    vocab_size: int,
    eos_ids: Sequence[int],
    context_length: int,
    seed: int = 7,
    choice: int = 0,
    prompt_length: int | None = None,
) -> Answer:
    """Plain decoding by the definition alone: one row, one choice, one token at a time."""
    end_ids = frozenset((*(() if sampling.ignore_eos else eos_ids), *sampling.stop_ids))
    sampler = TokenSampler(
        sampling,
        seed=seed,
        choice=choice,
        tokens=tokens,
        prompt_length=len(tokens) if prompt_length is None else prompt_length,
        end_ids=end_ids,
        vocab_size=vocab_size,
    )
    answer = Answer()
    while True:
        row = logits(sampler.tokens)
        token = sampler.choose(row)
        if sampling.logprobs is not None:
            answer.logprobs.append(token_logprobs(row, token, sampling.logprobs, vocab_size))
        sampler.append(token)
        answer.ids.append(token)
        if (
            token in end_ids
            or sampler.num_output >= sampling.max_tokens
            or sampler.position >= context_length
        ):
            return answer
