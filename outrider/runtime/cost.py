"""What one forward of a model computes and reads: the numerators of utilisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Weights of the matrix products, the output layer apart from the others, and the KV of one token."""

    num_weights: int
    weight_bytes: int
    num_head_weights: int
    head_bytes: int
    kv_token_bytes: int

    def flops(self, num_rows: int, num_head_rows: int) -> int:
        """Floating-point operations of the matrix products over so many rows; attention is left out."""
        return 2 * (self.num_weights * num_rows + self.num_head_weights * num_head_rows)

    def read_bytes(self, num_head_rows: int, num_kv_tokens: int) -> int:
        """Bytes read when each weight, and the KV of so many tokens, is read once."""
        head_bytes = self.head_bytes if num_head_rows else 0
        return self.weight_bytes + head_bytes + self.kv_token_bytes * num_kv_tokens


def model_cost(model: nn.Module, kv_token_bytes: int) -> ModelCost:
    """Add up the linear layers, whatever their weight format is.

    A layer is what has `in_features` and `out_features`; `weight_bytes` says how much it reads, else its
    `weight` does.
    """
    head = getattr(model, "get_output_embeddings", lambda: None)()
    sizes = {True: [0, 0], False: [0, 0]}
    for module in model.modules():
        rows, columns = getattr(module, "out_features", None), getattr(module, "in_features", None)
        if not isinstance(rows, int) or not isinstance(columns, int):
            continue
        size = sizes[module is head]
        size[0] += rows * columns
        size[1] += _weight_bytes(module, rows * columns)
    (weights, weight_bytes), (head_weights, head_bytes) = sizes[False], sizes[True]
    return ModelCost(weights, weight_bytes, head_weights, head_bytes, kv_token_bytes)


def _weight_bytes(module: nn.Module, num_weights: int) -> int:
    stated = getattr(module, "weight_bytes", None)
    if isinstance(stated, int):
        return stated
    weight = getattr(module, "weight", None)
    # Prepacked bfloat16 shows no weight of its own.
    return 2 * num_weights if weight is None else int(weight.nbytes)
