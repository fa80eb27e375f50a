"""How a model's linear layers hold their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from outrider.runtime.errors import ModelError
from outrider.runtime.weights.int4 import Int4Linear
from outrider.runtime.weights.int8 import Int8Linear
from outrider.runtime.weights.packed import PackedLinear

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["QUANTIZED", "Int4Linear", "Int8Linear", "PackedLinear", "row_multiple", "store_linears"]

QUANTIZED: dict[str, type[Int4Linear | Int8Linear]] = {"int8": Int8Linear, "int4": Int4Linear}
"""Weight-only formats: activations and keys and values stay bfloat16."""


# Of float32 and bfloat16 products; 1 for the quantized formats.
_ROW_MULTIPLE = 4


def store_linears(model: nn.Module, dtype: str, device: torch.device) -> None:
    """Replace the linear layers by those that hold their weights as `dtype` says, in place.

    Where a format does not take a layer's shape the layer keeps bfloat16.

    Raises:
        ModelError: a quantized format on a device that has no kernel for it.
    """
    if dtype in QUANTIZED and device.type != "cpu":
        raise ModelError(f"dtype {dtype} has kernels for the CPU only; use bfloat16 on {device}")
    if device.type != "cpu":
        return
    packs = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001  # the only way to ask
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.weight.dtype == torch.bfloat16:
                setattr(parent, name, _stored(child, QUANTIZED.get(dtype), packs=packs))


def row_multiple(model: nn.Module) -> int:
    """Row counts that give a row the same bits are the multiples of this, up to 1,024."""
    return max(
        (_ROW_MULTIPLE if isinstance(module, (nn.Linear, PackedLinear)) else 1 for module in model.modules()),
        default=1,
    )


def _stored(linear: nn.Linear, quantized: type[Int4Linear | Int8Linear] | None, *, packs: bool) -> nn.Module:
    make: Callable[[nn.Linear], nn.Module] | None = PackedLinear if packs else None
    if quantized is not None and quantized.takes(linear):
        make = quantized
    return make(linear) if make else linear
