"""Linear layers with weights of 4 bits."""

from __future__ import annotations

import torch
from torch import nn

GROUP = 32
"""Inputs that share a scale and a zero point; the group of the 4-bit GGUF formats."""

_LEVELS = 15
MIDDLE = 8


class Int4Linear(nn.Module):
    """Weights as 4-bit integers with a scale and a zero point per group; activations stay bfloat16.

    A weight is `(q - 8) * scale + zero` with 0 <= q <= 15. A row has the same bits for any number of rows.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        quantized, scales_and_zeros = quantize(linear.weight.detach(), GROUP)
        self._weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(quantized, 1)  # noqa: SLF001  # its only name
        self._scales_and_zeros = scales_and_zeros

    @property
    def weight_bytes(self) -> int:
        """Bytes that a forward reads."""
        return int(self._weight.nbytes + self._scales_and_zeros.nbytes)

    @staticmethod
    def takes(linear: nn.Linear) -> bool:
        """Whether the kernel takes this layer's shape."""
        return linear.in_features % GROUP == 0 and linear.out_features % 16 == 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., in_features] -> [..., out_features], bfloat16."""
        flat = rows.reshape(-1, rows.shape[-1])
        result: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(  # noqa: SLF001  # its only name
            flat, self._weight, GROUP, self._scales_and_zeros
        )
        if self.bias is not None:
            result += self.bias
        return result.view(*rows.shape[:-1], -1)


def quantize(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Spread the 16 levels of each group between its smallest and its largest weight.

    Args:
        weight: [out_features, in_features], in_features a multiple of `group`.
        group: inputs that share a scale and a zero point.

    Returns:
        Levels int32 [out_features, in_features]; scales and zero points bfloat16
        [in_features / group, out_features, 2].
    """
    groups = weight.float().view(len(weight), -1, group)
    low, high = groups.aminmax(dim=2, keepdim=True)
    # The kernel reads both in bfloat16, so the levels are found for what it will read.
    scale = ((high - low) / _LEVELS).clamp_min(torch.finfo(torch.float32).tiny).to(torch.bfloat16).float()
    zero = (low + MIDDLE * scale).to(torch.bfloat16).float()
    levels = ((groups - zero) / scale).round_().add_(MIDDLE).clamp_(0, _LEVELS)
    scales_and_zeros = torch.cat((scale, zero), dim=2).transpose(0, 1).to(torch.bfloat16)
    return levels.flatten(1).to(torch.int32), scales_and_zeros.contiguous()
