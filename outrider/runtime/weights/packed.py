"""Linear layers whose weights lie in memory as the kernel wants them."""

from __future__ import annotations

import torch
from torch import nn

# The row count that oneDNN is told to expect; the bits are the same for any other.
_EXPECTED_ROWS = 16


class PackedLinear(nn.Module):
    """A bfloat16 linear layer with its weight reordered once for oneDNN.

    Gives the same bits as `torch.nn.functional.linear`, without reordering the weight at each call.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        self._packed = torch.ops.mkldnn._reorder_linear_weight(  # noqa: SLF001  # the only way to its prepacking
            linear.weight.detach().contiguous(), _EXPECTED_ROWS
        )

    @staticmethod
    def takes(_: nn.Linear) -> bool:
        """Any layer."""
        return True

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., in_features] -> [..., out_features]."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001  # as above
            rows, self._packed, self.bias, "none", [], ""
        )
        return result
