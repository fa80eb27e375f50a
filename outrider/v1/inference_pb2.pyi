from outrider.v1 import generation_pb2 as _generation_pb2
from outrider.v1 import tensor_pb2 as _tensor_pb2
from outrider.v1 import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GenerateRequest(_message.Message):
    __slots__ = ("model", "prompt", "chat", "prompt_ids", "sampling", "seed", "stop", "speculation", "choice", "token_by_token", "cache_salt", "store", "workload")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    model: str
    prompt: str
    chat: Chat
    prompt_ids: _tensor_pb2.Tensor
    sampling: _generation_pb2.Sampling
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    speculation: _generation_pb2.Speculation
    choice: int
    token_by_token: bool
    cache_salt: str
    store: bool
    workload: str
    def __init__(self, model: _Optional[str] = ..., prompt: _Optional[str] = ..., chat: _Optional[_Union[Chat, _Mapping]] = ..., prompt_ids: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., sampling: _Optional[_Union[_generation_pb2.Sampling, _Mapping]] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., speculation: _Optional[_Union[_generation_pb2.Speculation, _Mapping]] = ..., choice: _Optional[int] = ..., token_by_token: _Optional[bool] = ..., cache_salt: _Optional[str] = ..., store: _Optional[bool] = ..., workload: _Optional[str] = ...) -> None: ...

class Chat(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("delta", "final", "error")
    DELTA_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    delta: Delta
    final: Final
    error: _generation_pb2.GenerationError
    def __init__(self, delta: _Optional[_Union[Delta, _Mapping]] = ..., final: _Optional[_Union[Final, _Mapping]] = ..., error: _Optional[_Union[_generation_pb2.GenerationError, _Mapping]] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("text", "token_ids", "logprobs")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: _tensor_pb2.Tensor
    logprobs: _containers.RepeatedCompositeFieldContainer[_generation_pb2.TokenLogprobs]
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., logprobs: _Optional[_Iterable[_Union[_generation_pb2.TokenLogprobs, _Mapping]]] = ...) -> None: ...

class Final(_message.Message):
    __slots__ = ("finish_reason", "stop", "usage", "seed", "counters", "numerics_id", "exactness", "changed_replica", "draft_status", "trace_id", "costs")
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_ID_FIELD_NUMBER: _ClassVar[int]
    EXACTNESS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_REPLICA_FIELD_NUMBER: _ClassVar[int]
    DRAFT_STATUS_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    finish_reason: _generation_pb2.FinishReason
    stop: str
    usage: Usage
    seed: int
    counters: _generation_pb2.Counters
    numerics_id: str
    exactness: _worker_pb2.Exactness
    changed_replica: bool
    draft_status: str
    trace_id: str
    costs: _generation_pb2.Costs
    def __init__(self, finish_reason: _Optional[_Union[_generation_pb2.FinishReason, str]] = ..., stop: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., seed: _Optional[int] = ..., counters: _Optional[_Union[_generation_pb2.Counters, _Mapping]] = ..., numerics_id: _Optional[str] = ..., exactness: _Optional[_Union[_worker_pb2.Exactness, str]] = ..., changed_replica: _Optional[bool] = ..., draft_status: _Optional[str] = ..., trace_id: _Optional[str] = ..., costs: _Optional[_Union[_generation_pb2.Costs, _Mapping]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ...) -> None: ...

class InferenceServicePurgeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InferenceServicePurgeResponse(_message.Message):
    __slots__ = ("num_entries",)
    NUM_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    num_entries: int
    def __init__(self, num_entries: _Optional[int] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[_worker_pb2.ModelInfo]
    def __init__(self, models: _Optional[_Iterable[_Union[_worker_pb2.ModelInfo, _Mapping]]] = ...) -> None: ...
