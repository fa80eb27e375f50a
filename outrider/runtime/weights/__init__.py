"""How a model's linear layers hold their weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from outrider.runtime.errors import ModelError
from outrider.runtime.weights.int4 import Int4Linear
from outrider.runtime.weights.int8 import Int8Linear
from outrider.runtime.weights.packed import PackedLinear
from outrider.runtime.weights.tiled import TiledLinear, obstacle_to_tiles

__all__ = [
    "CAREFUL",
    "QUANTIZED",
    "Int4Linear",
    "Int8Linear",
    "PackedLinear",
    "RowCounts",
    "TiledLinear",
    "row_counts",
    "store_linears",
]

Form = type[Int4Linear | Int8Linear | TiledLinear | PackedLinear]

QUANTIZED: dict[str, type[Int4Linear | Int8Linear]] = {"int8": Int8Linear, "int4": Int4Linear}
"""Weight-only formats: activations and keys and values stay bfloat16."""


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
    forms = _forms(dtype)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.weight.dtype == torch.bfloat16:
                form = next((form for form in forms if form.takes(child)), None)
                if form is not None:
                    setattr(parent, name, form(child))


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Row counts that give a row the same bits: multiples of one number, from another on, up to 1,024.

    Of more than `FEW` rows only multiples of `coarse` are used. oneDNN compiles and keeps a kernel for each
    shape that it meets, which takes time and memory, and to many rows a few more matter little.
    """

    fewest: int
    multiple: int
    coarse: int

    def padded(self, num_rows: int) -> int:
        """The smallest count in use that is not less than `num_rows`."""
        step = self.multiple if num_rows <= FEW else self.coarse
        return max(self.fewest, -(-num_rows // step) * step)


FEW = 16
"""Rows of a round with a deep draft."""

CAREFUL = RowCounts(fewest=4, multiple=4, coarse=8)
"""Holds for float32, and so for all."""

# Our own products need no second row, but torch sums a single one in another way in the norms.
_TILED = RowCounts(fewest=2, multiple=1, coarse=1)
# oneDNN's bfloat16 products differ for one row only, and take longer for two and three than for four.
_PACKED = RowCounts(fewest=4, multiple=1, coarse=8)
_QUANTIZED = RowCounts(fewest=1, multiple=1, coarse=1)


def row_counts(model: nn.Module) -> RowCounts:
    """Row counts that suit all layers of a model."""
    found = [_row_counts_of(module) for module in model.modules()]
    return max(found, key=lambda each: (each.multiple, each.fewest))


def _row_counts_of(module: nn.Module) -> RowCounts:
    if isinstance(module, PackedLinear):
        return _PACKED
    if isinstance(module, TiledLinear):
        return _TILED
    return CAREFUL if isinstance(module, nn.Linear) else _QUANTIZED


def _forms(dtype: str) -> list[Form]:
    """What a layer may become; the first that takes it."""
    forms: list[Form] = [QUANTIZED[dtype]] if dtype in QUANTIZED else []
    if obstacle_to_tiles() is None:
        forms.append(TiledLinear)
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():  # noqa: SLF001  # the only way to ask
        forms.append(PackedLinear)
    return forms
