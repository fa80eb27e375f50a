"""What can be seen to be wrong with a request before it is sent."""

from __future__ import annotations

from typing import Any

from outrider.rpc.errors import InvalidArgument
from outrider.sampling.parameters import InvalidParameter
from outrider.wire.generation import Speculation
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
    _check_speculation(request.speculation)
    _check("seed", request.seed, 0, MAX_UINT64)
    _check("choice", request.choice, 0, MAX_UINT32)
    try:
        return encode_generate(request)
    except (ValueError, TypeError, OverflowError) as error:  # a lone surrogate, or a number beyond 32 bits
        raise InvalidArgument(f"the request can not be sent: {error}") from error


def _check_speculation(wished: Speculation) -> None:
    _check("k", wished.k, 0, MAX_UINT32)
    _check("w", wished.w, 1, MAX_UINT32)
    _check("min_confidence", wished.min_confidence, 0, 1)
    for field in ("min_k", "max_k"):
        _check(field, getattr(wished, field), 0, MAX_UINT32)
        if wished.k is not None and getattr(wished, field) is not None:
            raise InvalidArgument(
                f"{field} bounds a k that is chosen for each round, and k is {wished.k}; give one of the two",
                field=field,
            )
    if wished.min_k is not None and wished.max_k is not None and wished.min_k > wished.max_k:
        raise InvalidArgument(
            f"min_k is {wished.min_k}, above max_k, {wished.max_k}; swap them", field="min_k"
        )
    _check("tpot_target_ms", wished.tpot_target_ms, 1, MAX_UINT32)
    _check("finish_target_ms", wished.finish_target_ms, 1, MAX_UINT32)


def _check(field: str, value: float | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        fix = f"{low} or more" if value < low else f"at most {high}"
        raise InvalidArgument(f"{field} is {value}; give {fix}", field=field)
