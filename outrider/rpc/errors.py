"""One table of what can go wrong between processes; every message names the field and the fix.

OutriderError                code                 reason                HTTP  retryable
├── InvalidArgument          INVALID_ARGUMENT     INVALID_ARGUMENT       400  no
│   └── ContextExceeded      INVALID_ARGUMENT     CONTEXT_EXCEEDED       400  no
├── NotFound                 NOT_FOUND            NOT_FOUND              404  no
├── FailedPrecondition       FAILED_PRECONDITION  FAILED_PRECONDITION    400  no
├── ResourceExhausted        RESOURCE_EXHAUSTED   RESOURCE_EXHAUSTED     429  yes
├── Unavailable              UNAVAILABLE          UNAVAILABLE            503  yes
│   └── NoEqualReplica       UNAVAILABLE          NO_EQUAL_REPLICA       503  yes
├── DeadlineExceeded         DEADLINE_EXCEEDED    DEADLINE_EXCEEDED      504  yes
└── Internal                 INTERNAL             INTERNAL               500  no
    ├── NonFiniteLogits      INTERNAL             NON_FINITE_LOGITS      500  no
    └── ProtocolViolation    INTERNAL             PROTOCOL_VIOLATION     500  no

Before a generation is accepted an error ends its RPC with a status that carries ErrorInfo (and BadRequest or
RetryInfo); afterwards it travels as one in-band `Failure`, and the RPC closes OK.
"""

from __future__ import annotations

from typing import ClassVar

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import (  # type: ignore[import-untyped]  # generated, and published without stubs
    code_pb2,
    error_details_pb2,
    status_pb2,
)
from grpc_status import rpc_status

from outrider.wire.generation import Failure

DOMAIN = "outrider"
"""The `domain` of every ErrorInfo."""


class OutriderError(Exception):
    """Base of all errors that cross a process boundary.

    Args:
        message: one sentence for a person.
        field: the request field that is at fault, if one is.
        retry_after_s: seconds after which a retry makes sense, if that is known.

    """

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL
    reason: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, field: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s


class InvalidArgument(OutriderError):
    """The request is wrong and stays wrong; `field` says where."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_ARGUMENT"
    http_status = 400


class ContextExceeded(InvalidArgument):
    """Prompt and output do not fit the model's context."""

    reason = "CONTEXT_EXCEEDED"


class NotFound(OutriderError):
    """No such model or session."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "NOT_FOUND"
    http_status = 404


class FailedPrecondition(OutriderError):
    """Two sides that do not fit: revision, tokenizer, numerics id."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "FAILED_PRECONDITION"
    http_status = 400


class ResourceExhausted(OutriderError):
    """Refused for load."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "RESOURCE_EXHAUSTED"
    http_status = 429
    retryable = True


class Unavailable(OutriderError):
    """Not reached, not loaded, or draining."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "UNAVAILABLE"
    http_status = 503
    retryable = True


class NoEqualReplica(Unavailable):
    """The validator is lost and no other gives equal bits."""

    reason = "NO_EQUAL_REPLICA"


class DeadlineExceeded(OutriderError):
    """It took longer than the caller allowed."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"
    http_status = 504
    retryable = True


class Internal(OutriderError):
    """A fault of ours; the log of the process has the details."""


class NonFiniteLogits(Internal):
    """The model gave a NaN where a token was to be chosen."""

    reason = "NON_FINITE_LOGITS"


class ProtocolViolation(Internal):
    """The peer broke a rule of its stream."""

    reason = "PROTOCOL_VIOLATION"


_BY_REASON: dict[str, type[OutriderError]] = {
    error.reason: error
    for error in (
        InvalidArgument,
        ContextExceeded,
        NotFound,
        FailedPrecondition,
        ResourceExhausted,
        Unavailable,
        NoEqualReplica,
        DeadlineExceeded,
        Internal,
        NonFiniteLogits,
        ProtocolViolation,
    )
}
# A peer that is not ours, or gRPC itself, gives a code without a reason.
_BY_CODE: dict[grpc.StatusCode, type[OutriderError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNIMPLEMENTED: FailedPrecondition,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
}


def to_failure(error: OutriderError) -> Failure:
    """The error as the one in-band event of an accepted generation."""
    return Failure(
        reason=error.reason,
        message=error.message,
        retryable=error.retryable,
        retry_after_ms=None if error.retry_after_s is None else round(error.retry_after_s * 1000),
    )


def from_failure(failure: Failure) -> OutriderError:
    """The opposite of `to_failure`; a reason of a later revision reads as `Internal`."""
    retry_after_s = None if failure.retry_after_ms is None else failure.retry_after_ms / 1000
    return _BY_REASON.get(failure.reason, Internal)(failure.message, retry_after_s=retry_after_s)


def status_of(error: OutriderError) -> status_pb2.Status:
    """The error as a rich gRPC status: ErrorInfo always, BadRequest with a field, RetryInfo with a time."""
    details = [error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN), *_optional_details(error)]
    packed = []
    for detail in details:
        wrapper = any_pb2.Any()
        wrapper.Pack(detail)
        packed.append(wrapper)
    return status_pb2.Status(code=code_pb2.Code.Value(error.code.name), message=error.message, details=packed)


def error_from_rpc(error: grpc.aio.AioRpcError) -> OutriderError:
    """What a failed call said, as one of the errors above; reads rich details when they are there."""
    field: str | None = None
    retry_after_s: float | None = None
    kind = _BY_CODE.get(error.code(), Internal)
    for detail in _details_of(error):
        info, bad_request, retry = (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.BadRequest(),
            error_details_pb2.RetryInfo(),
        )
        if detail.Unpack(info) and info.domain == DOMAIN:
            kind = _BY_REASON.get(info.reason, kind)
        elif detail.Unpack(bad_request) and bad_request.field_violations:
            field = bad_request.field_violations[0].field
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    message = error.details() or f"the call ended with {error.code().name}"
    return kind(message, field=field, retry_after_s=retry_after_s)


def _optional_details(
    error: OutriderError,
) -> list[error_details_pb2.BadRequest | error_details_pb2.RetryInfo]:
    details: list[error_details_pb2.BadRequest | error_details_pb2.RetryInfo] = []
    if error.field is not None:
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=error.message)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(round(error.retry_after_s * 1000))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return details


def _details_of(error: grpc.aio.AioRpcError) -> list[any_pb2.Any]:
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # an AioRpcError has what it reads
    except ValueError:  # the details contradict the status: only the status counts
        return []
    return list(status.details) if status is not None else []
