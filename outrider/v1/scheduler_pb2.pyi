from outrider.v1 import generation_pb2 as _generation_pb2
from outrider.v1 import tensor_pb2 as _tensor_pb2
from outrider.v1 import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATUS_UNSPECIFIED: _ClassVar[WorkerStatus]
    WORKER_STATUS_READY: _ClassVar[WorkerStatus]
    WORKER_STATUS_UNREACHABLE: _ClassVar[WorkerStatus]
    WORKER_STATUS_REFUSED: _ClassVar[WorkerStatus]
    WORKER_STATUS_DRAINING: _ClassVar[WorkerStatus]
WORKER_STATUS_UNSPECIFIED: WorkerStatus
WORKER_STATUS_READY: WorkerStatus
WORKER_STATUS_UNREACHABLE: WorkerStatus
WORKER_STATUS_REFUSED: WorkerStatus
WORKER_STATUS_DRAINING: WorkerStatus

class SchedulerServiceGenerateRequest(_message.Message):
    __slots__ = ("prompt", "output_so_far", "numerics_id", "sampling", "seed", "choice", "speculation", "tenant", "cache_salt", "store", "workload")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SO_FAR_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    prompt: _tensor_pb2.Tensor
    output_so_far: _tensor_pb2.Tensor
    numerics_id: str
    sampling: _generation_pb2.Sampling
    seed: int
    choice: int
    speculation: _generation_pb2.Speculation
    tenant: str
    cache_salt: str
    store: bool
    workload: str
    def __init__(self, prompt: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., output_so_far: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., numerics_id: _Optional[str] = ..., sampling: _Optional[_Union[_generation_pb2.Sampling, _Mapping]] = ..., seed: _Optional[int] = ..., choice: _Optional[int] = ..., speculation: _Optional[_Union[_generation_pb2.Speculation, _Mapping]] = ..., tenant: _Optional[str] = ..., cache_salt: _Optional[str] = ..., store: _Optional[bool] = ..., workload: _Optional[str] = ...) -> None: ...

class SchedulerServiceGenerateResponse(_message.Message):
    __slots__ = ("started", "committed", "finished", "error")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    started: Started
    committed: Committed
    finished: Finished
    error: _generation_pb2.GenerationError
    def __init__(self, started: _Optional[_Union[Started, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., error: _Optional[_Union[_generation_pb2.GenerationError, _Mapping]] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("session", "numerics_id", "exactness")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_ID_FIELD_NUMBER: _ClassVar[int]
    EXACTNESS_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    numerics_id: str
    exactness: _worker_pb2.Exactness
    def __init__(self, session: _Optional[bytes] = ..., numerics_id: _Optional[str] = ..., exactness: _Optional[_Union[_worker_pb2.Exactness, str]] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("tokens", "logprobs")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    tokens: _tensor_pb2.Tensor
    logprobs: _containers.RepeatedCompositeFieldContainer[_generation_pb2.TokenLogprobs]
    def __init__(self, tokens: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., logprobs: _Optional[_Iterable[_Union[_generation_pb2.TokenLogprobs, _Mapping]]] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("finish_reason", "counters", "numerics_id", "changed_replica", "draft_status", "costs")
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGED_REPLICA_FIELD_NUMBER: _ClassVar[int]
    DRAFT_STATUS_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    finish_reason: _generation_pb2.FinishReason
    counters: _generation_pb2.Counters
    numerics_id: str
    changed_replica: bool
    draft_status: str
    costs: _generation_pb2.Costs
    def __init__(self, finish_reason: _Optional[_Union[_generation_pb2.FinishReason, str]] = ..., counters: _Optional[_Union[_generation_pb2.Counters, _Mapping]] = ..., numerics_id: _Optional[str] = ..., changed_replica: _Optional[bool] = ..., draft_status: _Optional[str] = ..., costs: _Optional[_Union[_generation_pb2.Costs, _Mapping]] = ...) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ("session", "kept_length", "reason")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KEPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    kept_length: int
    reason: _generation_pb2.FinishReason
    def __init__(self, session: _Optional[bytes] = ..., kept_length: _Optional[int] = ..., reason: _Optional[_Union[_generation_pb2.FinishReason, str]] = ...) -> None: ...

class FinishResponse(_message.Message):
    __slots__ = ("finished",)
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    finished: Finished
    def __init__(self, finished: _Optional[_Union[Finished, _Mapping]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: SchedulerState
    def __init__(self, state: _Optional[_Union[SchedulerState, _Mapping]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: SchedulerState
    def __init__(self, state: _Optional[_Union[SchedulerState, _Mapping]] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class PurgeResponse(_message.Message):
    __slots__ = ("num_entries",)
    NUM_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    num_entries: int
    def __init__(self, num_entries: _Optional[int] = ...) -> None: ...

class SchedulerState(_message.Message):
    __slots__ = ("validators", "drafts", "num_sessions", "num_waiting", "control", "alerts", "alert_history", "store")
    VALIDATORS_FIELD_NUMBER: _ClassVar[int]
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    NUM_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    ALERTS_FIELD_NUMBER: _ClassVar[int]
    ALERT_HISTORY_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    validators: _containers.RepeatedCompositeFieldContainer[WorkerState]
    drafts: _containers.RepeatedCompositeFieldContainer[WorkerState]
    num_sessions: int
    num_waiting: int
    control: ControlState
    alerts: _containers.RepeatedCompositeFieldContainer[AlertState]
    alert_history: _containers.RepeatedCompositeFieldContainer[AlertEvent]
    store: StoreState
    def __init__(self, validators: _Optional[_Iterable[_Union[WorkerState, _Mapping]]] = ..., drafts: _Optional[_Iterable[_Union[WorkerState, _Mapping]]] = ..., num_sessions: _Optional[int] = ..., num_waiting: _Optional[int] = ..., control: _Optional[_Union[ControlState, _Mapping]] = ..., alerts: _Optional[_Iterable[_Union[AlertState, _Mapping]]] = ..., alert_history: _Optional[_Iterable[_Union[AlertEvent, _Mapping]]] = ..., store: _Optional[_Union[StoreState, _Mapping]] = ...) -> None: ...

class ControlState(_message.Message):
    __slots__ = ("policy", "committed", "tokens_per_s", "rounds_by_k", "sources", "depth_cap", "figures")
    class FiguresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    POLICY_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_BY_K_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    DEPTH_CAP_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    policy: str
    committed: int
    tokens_per_s: float
    rounds_by_k: _containers.RepeatedScalarFieldContainer[int]
    sources: _containers.RepeatedCompositeFieldContainer[SourceState]
    depth_cap: int
    figures: _containers.ScalarMap[str, float]
    def __init__(self, policy: _Optional[str] = ..., committed: _Optional[int] = ..., tokens_per_s: _Optional[float] = ..., rounds_by_k: _Optional[_Iterable[int]] = ..., sources: _Optional[_Iterable[_Union[SourceState, _Mapping]]] = ..., depth_cap: _Optional[int] = ..., figures: _Optional[_Mapping[str, float]] = ...) -> None: ...

class SourceState(_message.Message):
    __slots__ = ("source", "drafted", "accepted", "drafted_by_position", "accepted_by_position")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    source: _generation_pb2.DraftSource
    drafted: int
    accepted: int
    drafted_by_position: _containers.RepeatedScalarFieldContainer[int]
    accepted_by_position: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, source: _Optional[_Union[_generation_pb2.DraftSource, str]] = ..., drafted: _Optional[int] = ..., accepted: _Optional[int] = ..., drafted_by_position: _Optional[_Iterable[int]] = ..., accepted_by_position: _Optional[_Iterable[int]] = ...) -> None: ...

class AlertState(_message.Message):
    __slots__ = ("name", "metric", "level", "firing", "value", "low", "high", "action", "since_unix_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FIRING_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    metric: str
    level: str
    firing: bool
    value: float
    low: float
    high: float
    action: str
    since_unix_ms: int
    def __init__(self, name: _Optional[str] = ..., metric: _Optional[str] = ..., level: _Optional[str] = ..., firing: _Optional[bool] = ..., value: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., action: _Optional[str] = ..., since_unix_ms: _Optional[int] = ...) -> None: ...

class AlertEvent(_message.Message):
    __slots__ = ("unix_ms", "name", "kind", "message")
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    unix_ms: int
    name: str
    kind: str
    message: str
    def __init__(self, unix_ms: _Optional[int] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class StoreState(_message.Message):
    __slots__ = ("kind", "healthy", "reason", "num_hits", "num_misses", "num_failed_reads", "num_dropped_writes")
    KIND_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_HITS_FIELD_NUMBER: _ClassVar[int]
    NUM_MISSES_FIELD_NUMBER: _ClassVar[int]
    NUM_FAILED_READS_FIELD_NUMBER: _ClassVar[int]
    NUM_DROPPED_WRITES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    healthy: bool
    reason: str
    num_hits: int
    num_misses: int
    num_failed_reads: int
    num_dropped_writes: int
    def __init__(self, kind: _Optional[str] = ..., healthy: _Optional[bool] = ..., reason: _Optional[str] = ..., num_hits: _Optional[int] = ..., num_misses: _Optional[int] = ..., num_failed_reads: _Optional[int] = ..., num_dropped_writes: _Optional[int] = ...) -> None: ...

class WorkerState(_message.Message):
    __slots__ = ("address", "status", "reason", "info", "load")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    address: str
    status: WorkerStatus
    reason: str
    info: _worker_pb2.ModelInfo
    load: _worker_pb2.WorkerLoad
    def __init__(self, address: _Optional[str] = ..., status: _Optional[_Union[WorkerStatus, str]] = ..., reason: _Optional[str] = ..., info: _Optional[_Union[_worker_pb2.ModelInfo, _Mapping]] = ..., load: _Optional[_Union[_worker_pb2.WorkerLoad, _Mapping]] = ...) -> None: ...
