from outrider.v1 import generation_pb2 as _generation_pb2
from outrider.v1 import tensor_pb2 as _tensor_pb2
from outrider.v1 import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VerifyRequest(_message.Message):
    __slots__ = ("hello", "commands")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    hello: _worker_pb2.Hello
    commands: _containers.RepeatedCompositeFieldContainer[ValidatorCommand]
    def __init__(self, hello: _Optional[_Union[_worker_pb2.Hello, _Mapping]] = ..., commands: _Optional[_Iterable[_Union[ValidatorCommand, _Mapping]]] = ...) -> None: ...

class VerifyResponse(_message.Message):
    __slots__ = ("welcome", "events", "go_away", "load")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    welcome: _worker_pb2.Welcome
    events: _containers.RepeatedCompositeFieldContainer[ValidatorEvent]
    go_away: _worker_pb2.GoAway
    load: _worker_pb2.WorkerLoad
    def __init__(self, welcome: _Optional[_Union[_worker_pb2.Welcome, _Mapping]] = ..., events: _Optional[_Iterable[_Union[ValidatorEvent, _Mapping]]] = ..., go_away: _Optional[_Union[_worker_pb2.GoAway, _Mapping]] = ..., load: _Optional[_Union[_worker_pb2.WorkerLoad, _Mapping]] = ...) -> None: ...

class ValidatorCommand(_message.Message):
    __slots__ = ("header", "open", "verify", "resume", "close")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    header: _worker_pb2.EventHeader
    open: OpenTarget
    verify: Verify
    resume: _worker_pb2.Resume
    close: _worker_pb2.Close
    def __init__(self, header: _Optional[_Union[_worker_pb2.EventHeader, _Mapping]] = ..., open: _Optional[_Union[OpenTarget, _Mapping]] = ..., verify: _Optional[_Union[Verify, _Mapping]] = ..., resume: _Optional[_Union[_worker_pb2.Resume, _Mapping]] = ..., close: _Optional[_Union[_worker_pb2.Close, _Mapping]] = ...) -> None: ...

class ValidatorEvent(_message.Message):
    __slots__ = ("header", "opened", "verdict", "stale", "error")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    header: _worker_pb2.EventHeader
    opened: _worker_pb2.Opened
    verdict: Verdict
    stale: _worker_pb2.Stale
    error: _worker_pb2.SessionError
    def __init__(self, header: _Optional[_Union[_worker_pb2.EventHeader, _Mapping]] = ..., opened: _Optional[_Union[_worker_pb2.Opened, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ..., stale: _Optional[_Union[_worker_pb2.Stale, _Mapping]] = ..., error: _Optional[_Union[_worker_pb2.SessionError, _Mapping]] = ...) -> None: ...

class OpenTarget(_message.Message):
    __slots__ = ("tokens", "prompt_length", "sampling", "seed", "choice", "tenant", "cache_salt", "numerics_id", "first")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    tokens: _tensor_pb2.Tensor
    prompt_length: int
    sampling: _generation_pb2.Sampling
    seed: int
    choice: int
    tenant: str
    cache_salt: str
    numerics_id: str
    first: Verify
    def __init__(self, tokens: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., prompt_length: _Optional[int] = ..., sampling: _Optional[_Union[_generation_pb2.Sampling, _Mapping]] = ..., seed: _Optional[int] = ..., choice: _Optional[int] = ..., tenant: _Optional[str] = ..., cache_salt: _Optional[str] = ..., numerics_id: _Optional[str] = ..., first: _Optional[_Union[Verify, _Mapping]] = ...) -> None: ...

class Verify(_message.Message):
    __slots__ = ("tokens", "parents")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    tokens: _tensor_pb2.Tensor
    parents: _tensor_pb2.Tensor
    def __init__(self, tokens: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., parents: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("committed", "accepted", "raw_accepted", "drafted", "path", "logprobs", "finish_reason", "timings", "model_version", "prefill_only", "features")
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    RAW_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PREFILL_ONLY_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    committed: _tensor_pb2.Tensor
    accepted: int
    raw_accepted: int
    drafted: int
    path: _tensor_pb2.Tensor
    logprobs: _containers.RepeatedCompositeFieldContainer[_generation_pb2.TokenLogprobs]
    finish_reason: _generation_pb2.FinishReason
    timings: _worker_pb2.Timings
    model_version: str
    prefill_only: bool
    features: _tensor_pb2.Tensor
    def __init__(self, committed: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., accepted: _Optional[int] = ..., raw_accepted: _Optional[int] = ..., drafted: _Optional[int] = ..., path: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., logprobs: _Optional[_Iterable[_Union[_generation_pb2.TokenLogprobs, _Mapping]]] = ..., finish_reason: _Optional[_Union[_generation_pb2.FinishReason, str]] = ..., timings: _Optional[_Union[_worker_pb2.Timings, _Mapping]] = ..., model_version: _Optional[str] = ..., prefill_only: _Optional[bool] = ..., features: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
