import inspect

import grpc
import pytest

from outrider.rpc import errors
from outrider.rpc.errors import (
    ContextExceeded,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NoEqualReplica,
    OutriderError,
    ResourceExhausted,
    Unavailable,
    error_from_rpc,
    from_failure,
    status_of,
    to_failure,
)
from outrider.wire.generation import Failure

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, OutriderError) and kind is not OutriderError
]


def rpc_error(code, details="", trailing=()):
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


def through_a_status(error):
    status = status_of(error)
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    return error_from_rpc(
        rpc_error(code, status.message, [("grpc-status-details-bin", status.SerializeToString())])
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_a_status_and_a_failure(kind):
    error = kind("what happened", field="prompt", retry_after_s=1.5)
    back = through_a_status(error)
    assert type(back) is kind
    assert (back.message, back.field, back.retry_after_s) == ("what happened", "prompt", 1.5)
    in_band = to_failure(error)
    assert in_band == Failure(kind.reason, "what happened", kind.retryable, 1500)
    assert type(from_failure(in_band)) is kind


def test_reasons_are_unique_and_drawn_in_the_tree():
    assert len({kind.reason for kind in CLASSES}) == len(CLASSES)
    lines = errors.__doc__.splitlines()
    for kind in CLASSES:
        line = next(line for line in lines if f" {kind.__name__} " in line)
        assert kind.reason in line
        assert kind.code.name in line
        assert str(kind.http_status) in line
        assert ("yes" if kind.retryable else "no") in line.split()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgument),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhausted),
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.UNIMPLEMENTED, FailedPrecondition),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.DATA_LOSS, Internal),
    ],
)
def test_a_bare_code_of_a_foreign_peer(code, kind):
    error = error_from_rpc(rpc_error(code))
    assert type(error) is kind
    assert code.name in error.message


def test_details_that_contradict_the_status_do_not_count():
    details = status_of(NoEqualReplica("lost")).SerializeToString()
    error = error_from_rpc(
        rpc_error(grpc.StatusCode.NOT_FOUND, "gone", [("grpc-status-details-bin", details)])
    )
    assert type(error) is errors.NotFound


def test_a_reason_of_a_later_revision_keeps_its_message():
    error = from_failure(Failure("NOT_YET_KNOWN", "something new"))
    assert type(error) is Internal
    assert error.message == "something new"


def test_callers_catch_at_the_level_they_care_about():
    assert issubclass(ContextExceeded, InvalidArgument)
    assert issubclass(NoEqualReplica, Unavailable)
