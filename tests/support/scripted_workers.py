"""Draft and validator workers that follow a script: the rules of the stream without a model.

`ValidatorBrain` and `DraftBrain` are pure: a command in, events out. Behind `ScriptedWorker` they are real
grpc.aio services; tests of one session talk to them directly.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from outrider.rpc.errors import FailedPrecondition, OutriderError, to_failure
from outrider.rpc.interceptors import ErrorInterceptor
from outrider.sampling.tree import DraftTree
from outrider.v1 import draft_pb2_grpc, validator_pb2_grpc, worker_pb2, worker_pb2_grpc
from outrider.wire import draft, validator
from outrider.wire.draft import OpenDraft, Proposal, Propose
from outrider.wire.validator import OpenTarget
from outrider.wire.worker import (
    Addressed,
    Close,
    FromWorker,
    GoAway,
    Header,
    ModelInfo,
    Opened,
    Resume,
    SessionError,
    Stale,
    TokenizerFiles,
    Welcome,
    info_to_pb,
    tokenizer_to_pb,
)
from tests.support.reference_target import Generation, ReferenceTarget

Events = list[Addressed[Any]]


@dataclass
class Held:
    """A session as a worker holds it."""

    epoch: int
    tokens: list[int]
    generation: Generation
    end_ids: frozenset[int] = frozenset()
    # (round, base length) and the answer of the last round.
    answered: tuple[tuple[int, int], Any] | None = None


@dataclass
class Brain:
    """What both roles share: opening, taking over, closing."""

    credit: int = 2
    sessions: dict[bytes, Held] = field(default_factory=dict)
    """By session id; one peer per brain."""
    received: Events = field(default_factory=list)
    refusals: list[OutriderError] = field(default_factory=list)
    """Answer the next openings, one each."""

    def handle(self, header: Header, command: Any) -> Events:
        """The answer to one command."""
        self.received.append(Addressed(header, command))
        held = self.sessions.get(header.session)
        match command:
            case Close():
                self.sessions.pop(header.session, None)
                return []
            case Resume():
                if held is None or held.epoch >= header.epoch or not self._agrees(held, header):
                    return [self._stale(header, held)]
                held.epoch = header.epoch
                return []
            case OpenDraft() | OpenTarget():
                return self._open(header, command, held)
            case _:
                if held is None or held.epoch != header.epoch:
                    return [self._stale(header, held)]
                return self.round(header, command, held)

    def round(self, header: Header, command: Any, held: Held) -> Events:
        raise NotImplementedError

    def opened_with(self, command: Any) -> list[Any]:
        """Commands of one kind that came, for assertions."""
        return [item for item in self.received if isinstance(item.event, command)]

    def _agrees(self, held: Held, header: Header) -> bool:
        last = held.answered[0][1] if held.answered else -1
        return header.base_length in (len(held.tokens), last)

    def _open(self, header: Header, command: OpenDraft | OpenTarget, held: Held | None) -> Events:
        if held is not None and header.epoch <= held.epoch:
            return [self._stale(header, held)]
        if self.refusals:
            return [Addressed(header, SessionError(to_failure(self.refusals.pop(0))))]
        generation = Generation(command.prompt_length, command.sampling, command.seed, command.choice)
        ends = frozenset(command.end_ids) if isinstance(command, OpenDraft) else frozenset()
        held = Held(header.epoch, list(command.tokens), generation, ends)
        self.sessions[header.session] = held
        first = self.round(header, command.first, held) if command.first is not None else []
        return [Addressed(header, Opened(self.credit)), *first]

    def _stale(self, header: Header, held: Held | None) -> Addressed[Any]:
        epoch, length = (held.epoch, len(held.tokens)) if held else (0, 0)
        return Addressed(replace(header, epoch=epoch, base_length=length), Stale())


@dataclass
class ValidatorBrain(Brain):
    """Verifies with a reference target."""

    target: ReferenceTarget = field(default_factory=ReferenceTarget)

    def round(self, header: Header, command: Any, held: Held) -> Events:
        key = (header.round, header.base_length)
        if held.answered and held.answered[0] == key:
            return [Addressed(header, held.answered[1])]
        if header.base_length != len(held.tokens):
            return [self._stale(header, held)]
        is_prefill = held.answered is None and command.tree.num_nodes == 0
        verdict = replace(
            self.target.judge(command.tree, held.tokens, held.generation), prefill_only=is_prefill
        )
        held.tokens.extend(verdict.committed)
        held.answered = (key, verdict)
        return [Addressed(header, verdict)]


@dataclass(frozen=True)
class Wish:
    """What a proposer sees."""

    tokens: tuple[int, ...]
    generation: Generation
    k: int
    w: int
    end_ids: frozenset[int] = frozenset()


Proposer = Callable[[Wish], DraftTree | None]
"""None: no answer."""


@dataclass
class DraftBrain(Brain):
    """Proposes by a function, and mirrors what the scheduler tells."""

    propose: Proposer = lambda _: DraftTree.empty()

    def round(self, header: Header, command: Propose, held: Held) -> Events:
        held.tokens.extend(command.committed)
        if header.base_length != len(held.tokens):
            return [self._stale(header, held)]
        wish = Wish(tuple(held.tokens), held.generation, command.k, command.w, held.end_ids)
        tree = self.propose(wish)
        return [] if tree is None else [Addressed(header, Proposal(tree))]


def oracle(target: ReferenceTarget) -> Proposer:
    """Proposes exactly what the target will choose."""

    def propose(wish: Wish) -> DraftTree:
        text = list(wish.tokens)
        for _ in range(wish.k):
            text.append(target.next(text, wish.generation))
            if text[-1] in wish.end_ids:
                break
        return DraftTree.chain(text[len(wish.tokens) :])

    return propose


def wrong_at(index: int, target: ReferenceTarget) -> Proposer:
    """The oracle with a wrong id at one place."""
    right = oracle(target)

    def propose(wish: Wish) -> DraftTree:
        tokens = list(right(wish).tokens)  # type: ignore[union-attr]  # an oracle always answers
        if index < len(tokens):
            tokens[index] = 1 + tokens[index] % (target.info.vocab_size - 1)
        return DraftTree.chain(tokens)

    return propose


def branching(target: ReferenceTarget) -> Proposer:
    """w candidates: the oracle's comes last, wrong ones before it."""
    right = oracle(target)

    def propose(wish: Wish) -> DraftTree:
        chain = right(wish).tokens  # type: ignore[union-attr]  # an oracle always answers
        wrong = [tuple((token + 1 + shift) % 900 + 1 for token in chain) for shift in range(wish.w - 1)]
        return DraftTree.from_candidates([*wrong, chain])

    return propose


def hostile(seed: int = 0) -> Proposer:
    """Random and out-of-range ids, in trees that are deeper, wider and larger than asked."""
    source = random.Random(seed)

    def propose(wish: Wish) -> DraftTree:
        size = source.choice((1, wish.k, 3 * wish.k + 2, 300))
        ids = [source.choice((-1, -(2**31), 2**31 - 1, 10**6, source.randrange(1, 997))) for _ in range(size)]
        parents = [source.randrange(-1, node) for node in range(size)]
        return DraftTree(tuple(ids), tuple(parents))

    return propose


def silent(_: Wish) -> DraftTree | None:
    """Never answers."""
    return None


@dataclass
class ScriptedWorker(worker_pb2_grpc.WorkerServiceServicer):
    """A brain behind the real stream of its role, with faults that a test may set while it runs."""

    brain: Brain
    info: ModelInfo
    tokenizer: TokenizerFiles = field(
        default_factory=lambda: TokenizerFiles(b'{"model": {"vocab": {"a": 0, "b": 1}}}', "", {}, "tokenizer")
    )
    revision: tuple[int, int] = (1, 1)
    """Minimum and present revision that Welcome tells."""
    delay_s: float = 0.0
    """Before each answer."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Answers wait for it; set unless a test clears it."""
    say_twice: bool = False
    stray: Callable[[Header], Events] | None = None
    """Events that are sent before each answer: of unknown sessions, wrong epochs ..."""
    mangle: Callable[[Any], Any] | None = None
    """Changes an encoded response that carries events, such as into one that breaks the contract."""
    cut: Callable[[Header, Any], bool] | None = None
    """Ends the stream in place of handling this command; `cut_after` once it was handled."""
    cut_after: Callable[[Header, Any], bool] | None = None
    num_streams: int = 0
    num_messages: int = 0
    """Received, on all streams."""
    _outboxes: set[asyncio.Queue[FromWorker[Any] | None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.gate.set()

    async def Verify(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async for response in self._stream(validator, request_iterator):
            yield response

    async def Draft(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async for response in self._stream(draft, request_iterator):
            yield response

    async def GetTokenizer(self, request: Any, context: Any) -> Any:
        return tokenizer_to_pb(self.tokenizer)

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        return worker_pb2.GetModelInfoResponse(info=info_to_pb(self.info))

    async def GetLoad(self, request: Any, context: Any) -> Any:
        return worker_pb2.GetLoadResponse()

    async def Reload(self, request: Any, context: Any) -> Any:
        raise FailedPrecondition("a scripted worker has nothing to load")

    def go_away(self) -> None:
        """Say it on all streams."""
        for outbox in self._outboxes:
            outbox.put_nowait(FromWorker(go_away=GoAway(5000)))

    def cut_streams(self) -> None:
        """End all streams without a word."""
        for outbox in self._outboxes:
            outbox.put_nowait(None)

    async def _stream(self, codec: Any, requests: Any) -> AsyncIterator[Any]:
        self.num_streams += 1
        outbox: asyncio.Queue[FromWorker[Any] | None] = asyncio.Queue()
        self._outboxes.add(outbox)
        reader = asyncio.create_task(self._read(codec, requests, outbox))
        try:
            while (message := await outbox.get()) is not None:
                if message.events:
                    await self.gate.wait()
                response = codec.encode_response(message)
                yield self.mangle(response) if self.mangle and message.events else response
        finally:
            self._outboxes.discard(outbox)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, codec: Any, requests: Any, outbox: asyncio.Queue[FromWorker[Any] | None]) -> None:
        async for request in requests:
            self.num_messages += 1
            message = codec.decode_request(request)
            if message.hello:
                minimum, present = self.revision
                outbox.put_nowait(FromWorker(welcome=Welcome(self.info, 10_000, present, minimum)))
            for header, command in message.commands:
                if self.cut and self.cut(header, command):
                    outbox.put_nowait(None)
                    return
                events = self.brain.handle(header, command)
                if self.cut_after and self.cut_after(header, command):
                    outbox.put_nowait(None)
                    return
                await self._answer(header, events, outbox)
        outbox.put_nowait(None)

    async def _answer(
        self, header: Header, events: Events, outbox: asyncio.Queue[FromWorker[Any] | None]
    ) -> None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.stray:
            outbox.put_nowait(FromWorker(events=self.stray(header)))
        if events:
            for _ in range(2 if self.say_twice else 1):
                outbox.put_nowait(FromWorker(events=events))


@asynccontextmanager
async def serving(worker: ScriptedWorker, port: int = 0) -> AsyncIterator[str]:
    """The worker behind a real server; yields its address. Leaving the context kills it without a grace."""
    server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=[("grpc.so_reuseport", 0)])
    validator_pb2_grpc.add_ValidatorServiceServicer_to_server(worker, server)  # type: ignore[arg-type]  # both roles
    draft_pb2_grpc.add_DraftServiceServicer_to_server(worker, server)  # type: ignore[arg-type]  # both roles
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        await server.stop(None)


def scripted_validator(target: ReferenceTarget | None = None, **script: Any) -> ScriptedWorker:
    """A validator with a reference target."""
    target = target or ReferenceTarget()
    return ScriptedWorker(ValidatorBrain(target=target), target.info, **script)


def scripted_draft(propose: Proposer, info: ModelInfo | None = None, **script: Any) -> ScriptedWorker:
    """A draft with a proposer."""
    return ScriptedWorker(DraftBrain(propose=propose), info or ReferenceTarget().info, **script)
