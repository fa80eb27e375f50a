"""Linear layers with weights of 8 bits."""

from __future__ import annotations

import torch
from torch import nn


class Int8Linear(nn.Module):
    """Weights as signed 8-bit integers with one scale per output; activations stay bfloat16.

    A row has the same bits for any number of rows.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / 127
        self.bias = linear.bias
        self._weight = (weight / scale[:, None]).round_().to(torch.int8)
        self._scale = scale.to(torch.bfloat16)

    @property
    def weight_bytes(self) -> int:
        """Bytes that a forward reads."""
        return self._weight.nbytes + self._scale.nbytes

    @staticmethod
    def takes(linear: nn.Linear) -> bool:
        """Whether the kernel takes this layer's shape."""
        return linear.in_features % 4 == 0 and linear.out_features % 4 == 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., in_features] -> [..., out_features], bfloat16."""
        flat = rows.reshape(-1, rows.shape[-1])
        result: torch.Tensor = torch.ops.aten._weight_int8pack_mm(flat, self._weight, self._scale)  # noqa: SLF001  # its only name
        if self.bias is not None:
            result += self.bias
        return result.view(*rows.shape[:-1], -1)
