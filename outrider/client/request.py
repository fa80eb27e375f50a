"""What can be seen to be wrong with a request before it is sent."""

from __future__ import annotations

from typing import Any

from outrider.rpc.errors import InvalidArgument
from outrider.sampling.parameters import InvalidParameter
from outrider.wire.inference import GenerateRequest, encode_generate

MAX_UINT32 = 2**32 - 1
MAX_UINT64 = 2**64 - 1


def encode(request: GenerateRequest) -> Any:  # a message
    """Encode a request; the gateway judges it, but a message can not even hold some values.

    Raises InvalidArgument, naming the field.
    """
    try:
        request.sampling.validate()
    except InvalidParameter as error:
        raise InvalidArgument(error.message, field=error.field) from error
    _check("k", request.speculation.k, 0, MAX_UINT32)
    _check("w", request.speculation.w, 1, MAX_UINT32)
    _check("min_confidence", request.speculation.min_confidence, 0, 1)
    for field in ("min_k", "max_k", "tpot_target_ms", "finish_target_ms"):
        _check(field, getattr(request.speculation, field), 0, MAX_UINT32)
    _check("seed", request.seed, 0, MAX_UINT64)
    _check("choice", request.choice, 0, MAX_UINT32)
    try:
        return encode_generate(request)
    except (ValueError, TypeError, OverflowError) as error:  # a lone surrogate, or a number beyond 32 bits
        raise InvalidArgument(f"the request can not be sent: {error}") from error


def _check(field: str, value: float | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        fix = f"{low} or more" if value < low else f"at most {high}"
        raise InvalidArgument(f"{field} is {value}; give {fix}", field=field)
