"""A scheduler and a validator's unary calls that answer by script, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from outrider.rpc.errors import OutriderError
from outrider.rpc.interceptors import ErrorInterceptor
from outrider.sampling.acceptance import FinishReason
from outrider.v1 import scheduler_pb2_grpc, worker_pb2_grpc
from outrider.wire import scheduler
from outrider.wire.generation import Counters, Failure
from outrider.wire.state import SchedulerState, WorkerState, WorkerStatus
from outrider.wire.worker import Exactness, ModelInfo, TokenizerFiles, tokenizer_to_pb

SESSION = b"0123456789abcdef"


@dataclass
class Script:
    """What the next generation does, and afterwards what was asked of it."""

    rounds: list[tuple[int, ...]] = field(default_factory=list)
    """Tokens of each round. Each counts as len(tokens) - 1 accepted of 4 drafted."""
    logprobs: list[tuple[Any, ...]] = field(default_factory=list)
    end: FinishReason | Failure | OutriderError | None = FinishReason.LENGTH
    """None: the stream stays open until it is cancelled or finished."""
    refusal: OutriderError | None = None
    """Raised in place of Started."""
    finish_refusal: OutriderError | None = None
    """Raised by Finish."""
    gate: asyncio.Semaphore | None = None
    """Each round waits for one permit."""
    draft_status: str = ""
    numerics_id: str = "numerics"

    request: scheduler.GenerateRequest | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    finishes: list[scheduler.FinishRequest] = field(default_factory=list)
    num_sent: int = 0
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    """The first round is on its way."""
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def counters(self, kept: int | None = None) -> Counters:
        """Counters of the rounds that were sent, cut at a kept length."""
        left = sum(len(tokens) for tokens in self.rounds[: self.num_sent]) if kept is None else kept
        rounds = committed = accepted = 0
        for tokens in self.rounds[: self.num_sent]:
            inside = min(len(tokens), left)
            left -= inside
            rounds += inside > 0
            committed += inside
            accepted += min(len(tokens) - 1, inside)
        return Counters(rounds=rounds, committed=committed, drafted=4 * rounds, accepted=accepted)

    def finished_early(self) -> scheduler.Finished:
        """How the session ended at the length that Finish named."""
        finish = self.finishes[0]
        return scheduler.Finished(finish.reason, self.counters(finish.kept_length), "numerics")


class ScriptedScheduler(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Plays `script`; `state` is what Describe says."""

    def __init__(self) -> None:
        self.script = Script()
        self.script_for: Callable[[scheduler.GenerateRequest], Script] = lambda _: self.script
        """Which script answers a request; always `script` unless a test knows better."""
        self.state = SchedulerState()
        self.purged: list[str] = []

    async def Purge(self, request: Any, context: Any) -> Any:
        self.purged.append(scheduler.decode_purge(request))
        return scheduler.encode_purged(7)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        asked = scheduler.decode_generate(request)
        script = self.script_for(asked)
        script.request = asked
        script.metadata = dict(context.invocation_metadata())
        try:
            async for event in self._play(script):
                yield scheduler.encode_event(event)
        except (asyncio.CancelledError, GeneratorExit):
            script.cancelled.set()
            raise

    async def _play(self, script: Script) -> AsyncIterator[scheduler.GenerateEvent]:
        if refusal := script.refusal:
            raise refusal
        yield scheduler.Started(SESSION, script.numerics_id, Exactness.BITWISE)
        for index, tokens in enumerate(script.rounds):
            if script.gate:
                await script.gate.acquire()
            if script.finishes:
                break
            script.num_sent += 1
            script.sent.set()
            yield scheduler.Committed(tokens, script.logprobs[index] if script.logprobs else ())
        if script.finishes or script.end is None:
            await script.finished.wait()
            yield script.finished_early()
            return
        if isinstance(script.end, OutriderError):
            raise script.end
        if isinstance(script.end, Failure):
            yield script.end
            return
        yield scheduler.Finished(script.end, script.counters(), "numerics", draft_status=script.draft_status)

    async def Finish(self, request: Any, context: Any) -> Any:
        self.script.finishes.append(scheduler.decode_finish(request))
        self.script.finished.set()
        if self.script.finish_refusal:
            raise self.script.finish_refusal
        return scheduler.encode_finish_response(self.script.finished_early())

    async def Describe(self, request: Any, context: Any) -> Any:
        return scheduler.encode_describe(self.state)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield scheduler.encode_watch(self.state)


class ScriptedWorker(worker_pb2_grpc.WorkerServiceServicer):
    """Gives its files, and nothing else."""

    def __init__(self, files: TokenizerFiles) -> None:
        self.files = files
        self.num_fetches = 0

    async def GetTokenizer(self, request: Any, context: Any) -> Any:
        self.num_fetches += 1
        return tokenizer_to_pb(self.files)

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    async def GetLoad(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    async def Reload(self, request: Any, context: Any) -> Any:
        raise NotImplementedError


@dataclass
class Backend:
    """A scheduler and one validator, served at one address."""

    scheduler: ScriptedScheduler
    worker: ScriptedWorker
    address: str
    server: grpc.aio.Server

    def play(self, script: Script) -> Script:
        """Answer the next requests by this script."""
        self.scheduler.script = script
        return script

    def show(self, info: ModelInfo, status: WorkerStatus = WorkerStatus.READY) -> None:
        """Let Describe tell of this validator."""
        self.scheduler.state = SchedulerState(validators=(WorkerState(self.address, status, info=info),))


def info_of(files: TokenizerFiles, **changes: Any) -> ModelInfo:
    """A model that fits the files."""
    info = ModelInfo(
        model="tiny",
        weight_fingerprint="weights",
        tokenizer_fingerprint=files.tokenizer_fingerprint,
        vocab_size=300,
        context_length=64,
        numerics_id="numerics",
        exactness=Exactness.BITWISE,
        dtype="float32",
        device="cpu",
        eos_ids=(),
        model_version="1",
        instance_id=b"instance",
    )
    return replace(info, **changes)


@asynccontextmanager
async def scripted_backend(files: TokenizerFiles, info: ModelInfo) -> AsyncIterator[Backend]:
    """Serve on a free port, with the validator ready."""
    server = grpc.aio.server(interceptors=[ErrorInterceptor()])
    scripted, worker = ScriptedScheduler(), ScriptedWorker(files)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(scripted, server)
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    backend = Backend(scripted, worker, f"127.0.0.1:{port}", server)
    backend.show(info)
    try:
        yield backend
    finally:
        await server.stop(0)
