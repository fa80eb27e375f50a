"""Worker streams: what draft and validator have in common (worker.proto)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from outrider.v1 import worker_pb2 as pb
from outrider.wire.generation import Failure, failure_from_pb, failure_to_pb

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

REVISION = 1
MINIMUM_REVISION = 1
MAX_DEPTH = 64
MAX_NODES = 256


class Exactness(enum.Enum):
    """How far equal inputs give equal bits."""

    BITWISE = 1
    NEAR_TIE = 2


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a worker has loaded; field by field as in worker.proto."""

    model: str
    weight_fingerprint: str
    tokenizer_fingerprint: str
    vocab_size: int
    context_length: int
    numerics_id: str
    exactness: Exactness
    dtype: str
    device: str
    eos_ids: tuple[int, ...]
    model_version: str
    instance_id: bytes
    max_depth: int = MAX_DEPTH
    max_nodes: int = MAX_NODES
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """All that a gateway needs to turn text into ids and back."""

    tokenizer_json: bytes
    chat_template: str
    special_tokens: dict[str, str]
    tokenizer_fingerprint: str


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """What a worker is doing at one moment."""

    num_sessions: int = 0
    num_waiting: int = 0
    num_pages: int = 0
    num_free_pages: int = 0
    # Of the process, or of its device where it has one, and what there is of it; 0: not known.
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    # Share of the last second in which the device computed.
    utilization: float | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """First event of the scheduler on a stream."""

    peer_id: bytes
    revision: int = REVISION
    minimum_revision: int = MINIMUM_REVISION


@dataclass(frozen=True, slots=True)
class Welcome:
    """First event of the worker on a stream."""

    info: ModelInfo
    lease_ms: int
    revision: int = REVISION
    minimum_revision: int = MINIMUM_REVISION


@dataclass(frozen=True, slots=True)
class Header:
    """Whose event this is, and of which state of it."""

    session: bytes
    epoch: int
    round: int
    base_length: int
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """Answers Open: rounds that may be unanswered at one time."""

    credit: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Takes a session over on a new stream."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The session is not what the sender thinks."""


@dataclass(frozen=True, slots=True)
class Close:
    """Ends a session and frees what it holds."""


@dataclass(frozen=True, slots=True)
class SessionError:
    """The one terminal error of a session."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class GoAway:
    """The stream ends in `deadline_ms` at the latest."""

    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one round went, in microseconds of the worker's own clock."""

    queue_us: int = 0
    compute_us: int = 0
    num_forwards: int = 0
    batch_size: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """What carrying session events took, measured where they become messages and values; not on the wire."""

    sent_bytes: int = 0
    received_bytes: int = 0
    encode_ns: int = 0
    decode_ns: int = 0
    # Events, each one way between two processes.
    hops: int = 0

    def __add__(self, other: Transfer) -> Transfer:
        return Transfer(
            self.sent_bytes + other.sent_bytes,
            self.received_bytes + other.received_bytes,
            self.encode_ns + other.encode_ns,
            self.decode_ns + other.decode_ns,
            self.hops + other.hops,
        )

    def __sub__(self, other: Transfer) -> Transfer:
        return Transfer(
            self.sent_bytes - other.sent_bytes,
            self.received_bytes - other.received_bytes,
            self.encode_ns - other.encode_ns,
            self.decode_ns - other.decode_ns,
            self.hops - other.hops,
        )


class Addressed(NamedTuple, Generic[T]):
    """An event and the header that it travels under."""

    header: Header
    event: T


@dataclass(frozen=True, slots=True)
class ToWorker(Generic[T]):
    """One stream message from a scheduler; T is the union of the role's commands."""

    commands: Sequence[Addressed[T]] = ()
    hello: Hello | None = None


@dataclass(frozen=True, slots=True)
class FromWorker(Generic[T]):
    """One stream message from a worker; T is the union of the role's events."""

    events: Sequence[Addressed[T]] = ()
    welcome: Welcome | None = None
    go_away: GoAway | None = None
    load: WorkerLoad = field(default_factory=WorkerLoad)


def header_to_pb(header: Header) -> pb.EventHeader:
    return pb.EventHeader(
        session=header.session,
        epoch=header.epoch,
        round=header.round,
        base_length=header.base_length,
        traceparent=header.traceparent,
        tracestate=header.tracestate,
    )


def header_from_pb(message: pb.EventHeader) -> Header:
    return Header(
        session=message.session,
        epoch=message.epoch,
        round=message.round,
        base_length=message.base_length,
        traceparent=message.traceparent,
        tracestate=message.tracestate,
    )


def info_to_pb(info: ModelInfo) -> pb.ModelInfo:
    return pb.ModelInfo(
        model=info.model,
        weight_fingerprint=info.weight_fingerprint,
        tokenizer_fingerprint=info.tokenizer_fingerprint,
        vocab_size=info.vocab_size,
        context_length=info.context_length,
        numerics_id=info.numerics_id,
        exactness=exactness_to_pb(info.exactness),
        dtype=info.dtype,
        device=info.device,
        eos_ids=info.eos_ids,
        model_version=info.model_version,
        max_depth=info.max_depth,
        max_nodes=info.max_nodes,
        instance_id=info.instance_id,
        adapter=info.adapter,
    )


def info_from_pb(message: pb.ModelInfo) -> ModelInfo:
    return ModelInfo(
        model=message.model,
        weight_fingerprint=message.weight_fingerprint,
        tokenizer_fingerprint=message.tokenizer_fingerprint,
        vocab_size=message.vocab_size,
        context_length=message.context_length,
        numerics_id=message.numerics_id,
        exactness=exactness_from_pb(message.exactness),
        dtype=message.dtype,
        device=message.device,
        eos_ids=tuple(message.eos_ids),
        model_version=message.model_version,
        max_depth=message.max_depth,
        max_nodes=message.max_nodes,
        instance_id=message.instance_id,
        adapter=message.adapter,
    )


def exactness_to_pb(exactness: Exactness) -> pb.Exactness:
    return pb.EXACTNESS_BITWISE if exactness is Exactness.BITWISE else pb.EXACTNESS_NEAR_TIE


def exactness_from_pb(value: int) -> Exactness:
    """Anything that does not claim more is a near tie."""
    return Exactness.BITWISE if value == pb.EXACTNESS_BITWISE else Exactness.NEAR_TIE


def tokenizer_to_pb(files: TokenizerFiles) -> pb.GetTokenizerResponse:
    return pb.GetTokenizerResponse(
        tokenizer_json=files.tokenizer_json,
        chat_template=files.chat_template,
        special_tokens=files.special_tokens,
        tokenizer_fingerprint=files.tokenizer_fingerprint,
    )


def tokenizer_from_pb(message: pb.GetTokenizerResponse) -> TokenizerFiles:
    return TokenizerFiles(
        tokenizer_json=message.tokenizer_json,
        chat_template=message.chat_template,
        special_tokens=dict(message.special_tokens),
        tokenizer_fingerprint=message.tokenizer_fingerprint,
    )


def load_to_pb(load: WorkerLoad) -> pb.WorkerLoad:
    return pb.WorkerLoad(
        num_sessions=load.num_sessions,
        num_waiting=load.num_waiting,
        num_pages=load.num_pages,
        num_free_pages=load.num_free_pages,
        memory_bytes=load.memory_bytes,
        memory_limit_bytes=load.memory_limit_bytes,
        utilization=load.utilization,
    )


def load_from_pb(message: pb.WorkerLoad) -> WorkerLoad:
    return WorkerLoad(
        num_sessions=message.num_sessions,
        num_waiting=message.num_waiting,
        num_pages=message.num_pages,
        num_free_pages=message.num_free_pages,
        memory_bytes=message.memory_bytes,
        memory_limit_bytes=message.memory_limit_bytes,
        utilization=message.utilization if message.HasField("utilization") else None,
    )


def timings_to_pb(timings: Timings) -> pb.Timings:
    return pb.Timings(
        queue_us=timings.queue_us,
        compute_us=timings.compute_us,
        num_forwards=timings.num_forwards,
        batch_size=timings.batch_size,
        rows=timings.rows,
    )


def timings_from_pb(message: pb.Timings) -> Timings:
    return Timings(
        queue_us=message.queue_us,
        compute_us=message.compute_us,
        num_forwards=message.num_forwards,
        batch_size=message.batch_size,
        rows=message.rows,
    )


def hello_to_pb(hello: Hello) -> pb.Hello:
    return pb.Hello(revision=hello.revision, minimum_revision=hello.minimum_revision, peer_id=hello.peer_id)


def hello_from_pb(message: pb.Hello) -> Hello:
    return Hello(
        peer_id=message.peer_id, revision=message.revision, minimum_revision=message.minimum_revision
    )


def welcome_to_pb(welcome: Welcome) -> pb.Welcome:
    return pb.Welcome(
        revision=welcome.revision,
        minimum_revision=welcome.minimum_revision,
        info=info_to_pb(welcome.info),
        lease_ms=welcome.lease_ms,
    )


def welcome_from_pb(message: pb.Welcome) -> Welcome:
    return Welcome(
        info=info_from_pb(message.info),
        lease_ms=message.lease_ms,
        revision=message.revision,
        minimum_revision=message.minimum_revision,
    )


def error_to_pb(error: SessionError) -> pb.SessionError:
    return pb.SessionError(error=failure_to_pb(error.failure))


def error_from_pb(message: pb.SessionError) -> SessionError:
    return SessionError(failure_from_pb(message.error))
