from outrider.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Exactness(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXACTNESS_UNSPECIFIED: _ClassVar[Exactness]
    EXACTNESS_BITWISE: _ClassVar[Exactness]
    EXACTNESS_NEAR_TIE: _ClassVar[Exactness]
EXACTNESS_UNSPECIFIED: Exactness
EXACTNESS_BITWISE: Exactness
EXACTNESS_NEAR_TIE: Exactness

class GetModelInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModelInfoResponse(_message.Message):
    __slots__ = ("info",)
    INFO_FIELD_NUMBER: _ClassVar[int]
    info: ModelInfo
    def __init__(self, info: _Optional[_Union[ModelInfo, _Mapping]] = ...) -> None: ...

class GetTokenizerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTokenizerResponse(_message.Message):
    __slots__ = ("tokenizer_json", "chat_template", "special_tokens", "tokenizer_fingerprint")
    class SpecialTokensEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOKENIZER_JSON_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    tokenizer_json: bytes
    chat_template: str
    special_tokens: _containers.ScalarMap[str, str]
    tokenizer_fingerprint: str
    def __init__(self, tokenizer_json: _Optional[bytes] = ..., chat_template: _Optional[str] = ..., special_tokens: _Optional[_Mapping[str, str]] = ..., tokenizer_fingerprint: _Optional[str] = ...) -> None: ...

class GetLoadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLoadResponse(_message.Message):
    __slots__ = ("load",)
    LOAD_FIELD_NUMBER: _ClassVar[int]
    load: WorkerLoad
    def __init__(self, load: _Optional[_Union[WorkerLoad, _Mapping]] = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class ReloadResponse(_message.Message):
    __slots__ = ("info",)
    INFO_FIELD_NUMBER: _ClassVar[int]
    info: ModelInfo
    def __init__(self, info: _Optional[_Union[ModelInfo, _Mapping]] = ...) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ("model", "weight_fingerprint", "tokenizer_fingerprint", "vocab_size", "context_length", "numerics_id", "exactness", "dtype", "device", "eos_ids", "model_version", "max_depth", "max_nodes", "instance_id", "adapter")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_ID_FIELD_NUMBER: _ClassVar[int]
    EXACTNESS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    EOS_IDS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    model: str
    weight_fingerprint: str
    tokenizer_fingerprint: str
    vocab_size: int
    context_length: int
    numerics_id: str
    exactness: Exactness
    dtype: str
    device: str
    eos_ids: _containers.RepeatedScalarFieldContainer[int]
    model_version: str
    max_depth: int
    max_nodes: int
    instance_id: bytes
    adapter: str
    def __init__(self, model: _Optional[str] = ..., weight_fingerprint: _Optional[str] = ..., tokenizer_fingerprint: _Optional[str] = ..., vocab_size: _Optional[int] = ..., context_length: _Optional[int] = ..., numerics_id: _Optional[str] = ..., exactness: _Optional[_Union[Exactness, str]] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., eos_ids: _Optional[_Iterable[int]] = ..., model_version: _Optional[str] = ..., max_depth: _Optional[int] = ..., max_nodes: _Optional[int] = ..., instance_id: _Optional[bytes] = ..., adapter: _Optional[str] = ...) -> None: ...

class WorkerLoad(_message.Message):
    __slots__ = ("num_sessions", "num_waiting", "num_pages", "num_free_pages", "memory_bytes", "memory_limit_bytes", "utilization")
    NUM_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_PAGES_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_PAGES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    num_sessions: int
    num_waiting: int
    num_pages: int
    num_free_pages: int
    memory_bytes: int
    memory_limit_bytes: int
    utilization: float
    def __init__(self, num_sessions: _Optional[int] = ..., num_waiting: _Optional[int] = ..., num_pages: _Optional[int] = ..., num_free_pages: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., memory_limit_bytes: _Optional[int] = ..., utilization: _Optional[float] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("revision", "minimum_revision", "peer_id")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_REVISION_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    revision: int
    minimum_revision: int
    peer_id: bytes
    def __init__(self, revision: _Optional[int] = ..., minimum_revision: _Optional[int] = ..., peer_id: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("revision", "minimum_revision", "info", "lease_ms")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_REVISION_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    minimum_revision: int
    info: ModelInfo
    lease_ms: int
    def __init__(self, revision: _Optional[int] = ..., minimum_revision: _Optional[int] = ..., info: _Optional[_Union[ModelInfo, _Mapping]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class EventHeader(_message.Message):
    __slots__ = ("session", "epoch", "round", "base_length", "traceparent", "tracestate")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    epoch: int
    round: int
    base_length: int
    traceparent: str
    tracestate: str
    def __init__(self, session: _Optional[bytes] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., base_length: _Optional[int] = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("credit",)
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    credit: int
    def __init__(self, credit: _Optional[int] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Stale(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Close(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SessionError(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _generation_pb2.GenerationError
    def __init__(self, error: _Optional[_Union[_generation_pb2.GenerationError, _Mapping]] = ...) -> None: ...

class GoAway(_message.Message):
    __slots__ = ("deadline_ms",)
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    deadline_ms: int
    def __init__(self, deadline_ms: _Optional[int] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_us", "compute_us", "num_forwards", "batch_size", "rows")
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_US_FIELD_NUMBER: _ClassVar[int]
    NUM_FORWARDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    queue_us: int
    compute_us: int
    num_forwards: int
    batch_size: int
    rows: int
    def __init__(self, queue_us: _Optional[int] = ..., compute_us: _Optional[int] = ..., num_forwards: _Optional[int] = ..., batch_size: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...
