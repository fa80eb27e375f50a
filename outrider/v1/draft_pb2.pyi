from outrider.v1 import generation_pb2 as _generation_pb2
from outrider.v1 import tensor_pb2 as _tensor_pb2
from outrider.v1 import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DraftRequest(_message.Message):
    __slots__ = ("hello", "commands")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    hello: _worker_pb2.Hello
    commands: _containers.RepeatedCompositeFieldContainer[DraftCommand]
    def __init__(self, hello: _Optional[_Union[_worker_pb2.Hello, _Mapping]] = ..., commands: _Optional[_Iterable[_Union[DraftCommand, _Mapping]]] = ...) -> None: ...

class DraftResponse(_message.Message):
    __slots__ = ("welcome", "events", "go_away", "load")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    welcome: _worker_pb2.Welcome
    events: _containers.RepeatedCompositeFieldContainer[DraftEvent]
    go_away: _worker_pb2.GoAway
    load: _worker_pb2.WorkerLoad
    def __init__(self, welcome: _Optional[_Union[_worker_pb2.Welcome, _Mapping]] = ..., events: _Optional[_Iterable[_Union[DraftEvent, _Mapping]]] = ..., go_away: _Optional[_Union[_worker_pb2.GoAway, _Mapping]] = ..., load: _Optional[_Union[_worker_pb2.WorkerLoad, _Mapping]] = ...) -> None: ...

class DraftCommand(_message.Message):
    __slots__ = ("header", "open", "propose", "resume", "close")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PROPOSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    header: _worker_pb2.EventHeader
    open: OpenDraft
    propose: Propose
    resume: _worker_pb2.Resume
    close: _worker_pb2.Close
    def __init__(self, header: _Optional[_Union[_worker_pb2.EventHeader, _Mapping]] = ..., open: _Optional[_Union[OpenDraft, _Mapping]] = ..., propose: _Optional[_Union[Propose, _Mapping]] = ..., resume: _Optional[_Union[_worker_pb2.Resume, _Mapping]] = ..., close: _Optional[_Union[_worker_pb2.Close, _Mapping]] = ...) -> None: ...

class DraftEvent(_message.Message):
    __slots__ = ("header", "opened", "proposal", "stale", "error")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    header: _worker_pb2.EventHeader
    opened: _worker_pb2.Opened
    proposal: Proposal
    stale: _worker_pb2.Stale
    error: _worker_pb2.SessionError
    def __init__(self, header: _Optional[_Union[_worker_pb2.EventHeader, _Mapping]] = ..., opened: _Optional[_Union[_worker_pb2.Opened, _Mapping]] = ..., proposal: _Optional[_Union[Proposal, _Mapping]] = ..., stale: _Optional[_Union[_worker_pb2.Stale, _Mapping]] = ..., error: _Optional[_Union[_worker_pb2.SessionError, _Mapping]] = ...) -> None: ...

class OpenDraft(_message.Message):
    __slots__ = ("tokens", "prompt_length", "sampling", "seed", "choice", "end_ids", "tenant", "cache_salt", "first")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    END_IDS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    tokens: _tensor_pb2.Tensor
    prompt_length: int
    sampling: _generation_pb2.Sampling
    seed: int
    choice: int
    end_ids: _containers.RepeatedScalarFieldContainer[int]
    tenant: str
    cache_salt: str
    first: Propose
    def __init__(self, tokens: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., prompt_length: _Optional[int] = ..., sampling: _Optional[_Union[_generation_pb2.Sampling, _Mapping]] = ..., seed: _Optional[int] = ..., choice: _Optional[int] = ..., end_ids: _Optional[_Iterable[int]] = ..., tenant: _Optional[str] = ..., cache_salt: _Optional[str] = ..., first: _Optional[_Union[Propose, _Mapping]] = ...) -> None: ...

class Propose(_message.Message):
    __slots__ = ("committed", "k", "w", "prefix", "assumed", "features", "min_confidence")
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    W_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    ASSUMED_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    MIN_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    committed: _tensor_pb2.Tensor
    k: int
    w: int
    prefix: _tensor_pb2.Tensor
    assumed: _tensor_pb2.Tensor
    features: _tensor_pb2.Tensor
    min_confidence: float
    def __init__(self, committed: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., k: _Optional[int] = ..., w: _Optional[int] = ..., prefix: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., assumed: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., features: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., min_confidence: _Optional[float] = ...) -> None: ...

class Proposal(_message.Message):
    __slots__ = ("tokens", "parents", "sources", "logprobs", "timings", "model_version", "confidences")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCES_FIELD_NUMBER: _ClassVar[int]
    tokens: _tensor_pb2.Tensor
    parents: _tensor_pb2.Tensor
    sources: _containers.RepeatedScalarFieldContainer[_generation_pb2.DraftSource]
    logprobs: _tensor_pb2.Tensor
    timings: _worker_pb2.Timings
    model_version: str
    confidences: _tensor_pb2.Tensor
    def __init__(self, tokens: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., parents: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., sources: _Optional[_Iterable[_Union[_generation_pb2.DraftSource, str]]] = ..., logprobs: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., timings: _Optional[_Union[_worker_pb2.Timings, _Mapping]] = ..., model_version: _Optional[str] = ..., confidences: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
