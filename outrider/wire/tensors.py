"""Ids and floats as `Tensor` messages: little-endian, row-major, shape beside the bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider.v1 import tensor_pb2 as pb


class MalformedMessage(ValueError):
    """A message that breaks its contract; `field` names where."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


def ids_to_tensor(ids: Sequence[int]) -> pb.Tensor:
    """Encode token ids (or indices) as INT32 [n]."""
    return pb.Tensor(
        datatype=pb.DATA_TYPE_INT32, shape=[len(ids)], data=np.asarray(ids, dtype="<i4").tobytes()
    )


def ids_from_tensor(tensor: pb.Tensor, field: str) -> tuple[int, ...]:
    """Decode INT32 [n]; an absent tensor is an empty one. Raises `MalformedMessage`."""
    return tuple(_vector(tensor, field, pb.DATA_TYPE_INT32, "<i4").tolist())


def floats_to_tensor(values: Sequence[float]) -> pb.Tensor:
    """Encode as FP32 [n]."""
    return pb.Tensor(
        datatype=pb.DATA_TYPE_FP32, shape=[len(values)], data=np.asarray(values, dtype="<f4").tobytes()
    )


def floats_from_tensor(tensor: pb.Tensor, field: str) -> tuple[float, ...]:
    """Decode FP32 [n]; an absent tensor is an empty one. Raises `MalformedMessage`."""
    return tuple(_vector(tensor, field, pb.DATA_TYPE_FP32, "<f4").tolist())


def _vector(tensor: pb.Tensor, field: str, datatype: pb.DataType, dtype: str) -> np.ndarray:
    if not tensor.shape and not tensor.data:
        return np.empty(0, dtype=dtype)
    if tensor.datatype != datatype:
        wanted, found = pb.DataType.Name(datatype), _name_of(tensor.datatype)
        raise MalformedMessage(field, f"datatype is {found}, must be {wanted}")
    if len(tensor.shape) != 1:
        raise MalformedMessage(field, f"has {len(tensor.shape)} dimensions, must have 1")
    size = np.dtype(dtype).itemsize
    if len(tensor.data) != tensor.shape[0] * size:
        raise MalformedMessage(
            field, f"has {len(tensor.data)} bytes, shape {list(tensor.shape)} needs {tensor.shape[0] * size}"
        )
    return np.frombuffer(tensor.data, dtype=dtype)


def _name_of(datatype: int) -> str:
    # Any number may arrive in an open enum.
    return pb.DataType.Name(datatype) if datatype in pb.DataType.values() else str(datatype)
