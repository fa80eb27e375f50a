from outrider.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DraftSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRAFT_SOURCE_UNSPECIFIED: _ClassVar[DraftSource]
    DRAFT_SOURCE_NONE: _ClassVar[DraftSource]
    DRAFT_SOURCE_NGRAM: _ClassVar[DraftSource]
    DRAFT_SOURCE_MODEL: _ClassVar[DraftSource]
    DRAFT_SOURCE_PATTERN_CACHE: _ClassVar[DraftSource]
    DRAFT_SOURCE_CANDIDATE_CACHE: _ClassVar[DraftSource]
    DRAFT_SOURCE_PREDICTION: _ClassVar[DraftSource]
    DRAFT_SOURCE_GRAMMAR: _ClassVar[DraftSource]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_STOP_STRING: _ClassVar[FinishReason]
    FINISH_REASON_CANCELLED: _ClassVar[FinishReason]
DRAFT_SOURCE_UNSPECIFIED: DraftSource
DRAFT_SOURCE_NONE: DraftSource
DRAFT_SOURCE_NGRAM: DraftSource
DRAFT_SOURCE_MODEL: DraftSource
DRAFT_SOURCE_PATTERN_CACHE: DraftSource
DRAFT_SOURCE_CANDIDATE_CACHE: DraftSource
DRAFT_SOURCE_PREDICTION: DraftSource
DRAFT_SOURCE_GRAMMAR: DraftSource
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_STOP_STRING: FinishReason
FINISH_REASON_CANCELLED: FinishReason

class Sampling(_message.Message):
    __slots__ = ("min_tokens", "max_tokens", "logit_bias", "repetition_penalty", "presence_penalty", "frequency_penalty", "temperature", "top_k", "top_p", "min_p", "stop_ids", "ignore_eos", "logprobs")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    STOP_IDS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    min_tokens: int
    max_tokens: int
    logit_bias: _containers.ScalarMap[int, float]
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    stop_ids: _containers.RepeatedScalarFieldContainer[int]
    ignore_eos: bool
    logprobs: int
    def __init__(self, min_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., stop_ids: _Optional[_Iterable[int]] = ..., ignore_eos: _Optional[bool] = ..., logprobs: _Optional[int] = ...) -> None: ...

class Speculation(_message.Message):
    __slots__ = ("k", "w", "source", "min_confidence", "min_k", "max_k", "tpot_target_ms", "finish_target_ms")
    K_FIELD_NUMBER: _ClassVar[int]
    W_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MIN_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    MIN_K_FIELD_NUMBER: _ClassVar[int]
    MAX_K_FIELD_NUMBER: _ClassVar[int]
    TPOT_TARGET_MS_FIELD_NUMBER: _ClassVar[int]
    FINISH_TARGET_MS_FIELD_NUMBER: _ClassVar[int]
    k: int
    w: int
    source: DraftSource
    min_confidence: float
    min_k: int
    max_k: int
    tpot_target_ms: int
    finish_target_ms: int
    def __init__(self, k: _Optional[int] = ..., w: _Optional[int] = ..., source: _Optional[_Union[DraftSource, str]] = ..., min_confidence: _Optional[float] = ..., min_k: _Optional[int] = ..., max_k: _Optional[int] = ..., tpot_target_ms: _Optional[int] = ..., finish_target_ms: _Optional[int] = ...) -> None: ...

class TokenLogprobs(_message.Message):
    __slots__ = ("logprob", "top_ids", "top_logprobs")
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprob: float
    top_ids: _tensor_pb2.Tensor
    top_logprobs: _tensor_pb2.Tensor
    def __init__(self, logprob: _Optional[float] = ..., top_ids: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., top_logprobs: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Counters(_message.Message):
    __slots__ = ("rounds", "committed", "drafted", "accepted", "raw_accepted", "discarded_rounds", "missed_proposals", "reopens", "drafted_by_position", "accepted_by_position", "by_source")
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    RAW_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    MISSED_PROPOSALS_FIELD_NUMBER: _ClassVar[int]
    REOPENS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    BY_SOURCE_FIELD_NUMBER: _ClassVar[int]
    rounds: int
    committed: int
    drafted: int
    accepted: int
    raw_accepted: int
    discarded_rounds: int
    missed_proposals: int
    reopens: int
    drafted_by_position: _containers.RepeatedScalarFieldContainer[int]
    accepted_by_position: _containers.RepeatedScalarFieldContainer[int]
    by_source: _containers.RepeatedCompositeFieldContainer[SourceCounters]
    def __init__(self, rounds: _Optional[int] = ..., committed: _Optional[int] = ..., drafted: _Optional[int] = ..., accepted: _Optional[int] = ..., raw_accepted: _Optional[int] = ..., discarded_rounds: _Optional[int] = ..., missed_proposals: _Optional[int] = ..., reopens: _Optional[int] = ..., drafted_by_position: _Optional[_Iterable[int]] = ..., accepted_by_position: _Optional[_Iterable[int]] = ..., by_source: _Optional[_Iterable[_Union[SourceCounters, _Mapping]]] = ...) -> None: ...

class SourceCounters(_message.Message):
    __slots__ = ("source", "drafted", "accepted")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    source: DraftSource
    drafted: int
    accepted: int
    def __init__(self, source: _Optional[_Union[DraftSource, str]] = ..., drafted: _Optional[int] = ..., accepted: _Optional[int] = ...) -> None: ...

class Costs(_message.Message):
    __slots__ = ("queue_us", "prefill_us", "draft_us", "verify_us", "draft_queue_us", "draft_compute_us", "validator_queue_us", "validator_compute_us", "draft_sent_bytes", "draft_received_bytes", "validator_sent_bytes", "validator_received_bytes", "encode_us", "decode_us", "hops")
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    PREFILL_US_FIELD_NUMBER: _ClassVar[int]
    DRAFT_US_FIELD_NUMBER: _ClassVar[int]
    VERIFY_US_FIELD_NUMBER: _ClassVar[int]
    DRAFT_QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    DRAFT_COMPUTE_US_FIELD_NUMBER: _ClassVar[int]
    VALIDATOR_QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    VALIDATOR_COMPUTE_US_FIELD_NUMBER: _ClassVar[int]
    DRAFT_SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    DRAFT_RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALIDATOR_SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALIDATOR_RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENCODE_US_FIELD_NUMBER: _ClassVar[int]
    DECODE_US_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    queue_us: int
    prefill_us: int
    draft_us: int
    verify_us: int
    draft_queue_us: int
    draft_compute_us: int
    validator_queue_us: int
    validator_compute_us: int
    draft_sent_bytes: int
    draft_received_bytes: int
    validator_sent_bytes: int
    validator_received_bytes: int
    encode_us: int
    decode_us: int
    hops: int
    def __init__(self, queue_us: _Optional[int] = ..., prefill_us: _Optional[int] = ..., draft_us: _Optional[int] = ..., verify_us: _Optional[int] = ..., draft_queue_us: _Optional[int] = ..., draft_compute_us: _Optional[int] = ..., validator_queue_us: _Optional[int] = ..., validator_compute_us: _Optional[int] = ..., draft_sent_bytes: _Optional[int] = ..., draft_received_bytes: _Optional[int] = ..., validator_sent_bytes: _Optional[int] = ..., validator_received_bytes: _Optional[int] = ..., encode_us: _Optional[int] = ..., decode_us: _Optional[int] = ..., hops: _Optional[int] = ...) -> None: ...

class GenerationError(_message.Message):
    __slots__ = ("reason", "message", "retryable", "retry_after_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    retryable: bool
    retry_after_ms: int
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...
