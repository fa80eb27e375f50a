"""4-bit weights in the tiles that `decoder.cpp` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from outrider.runtime.decoder import can_fuse
from outrider.runtime.weights.int4 import GROUP, MIDDLE, quantize

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# As in decoder.cpp.
_TILE = 16


class NativeLinear(nn.Module):
    """Weights of one linear layer, uint8 [out_features / 16, in_features / 32, 320], for `NativeForward`."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        bias: torch.Tensor | None = linear.bias
        self.bias = None if bias is None else bias.detach().float().contiguous()
        levels, scales_and_zeros = quantize(linear.weight.detach(), GROUP)
        self.tiles = _tiled(levels, scales_and_zeros)

    @property
    def weight_bytes(self) -> int:
        """Bytes that a forward reads."""
        return int(self.tiles.nbytes)


def obstacle_to_native(model: PreTrainedModel) -> str | None:
    """Why a model, as it was loaded, can not be run by `NativeForward`; None when it can."""
    if not can_fuse(model):
        return "its layers are not those of Llama or Qwen2"
    for name, module in model.named_modules():
        if getattr(module, "sliding_window", None) is not None:
            return f"{name} has a sliding window"
        if getattr(module, "head_dim", _TILE) % _TILE:
            return f"{name} has heads of {module.head_dim} dimensions, which is no multiple of {_TILE}"
        if isinstance(module, nn.Linear) and (module.in_features % GROUP or module.out_features % _TILE):
            return f"{name} has {module.in_features} inputs and {module.out_features} outputs"
    return None


def store_native(model: nn.Module) -> None:
    """Replace all linear layers by `NativeLinear`, in place; the model's own code can not run any more."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, NativeLinear(child))


def _tiled(levels: torch.Tensor, scales_and_zeros: torch.Tensor) -> torch.Tensor:
    """Order levels [outputs, inputs] and their scales as decoder.cpp says."""
    outputs, inputs = levels.shape
    tiles, groups = outputs // _TILE, inputs // GROUP
    # [tile, output, group, line, half, input of four] -> [tile, group, line, half, output, input of four]
    halves = levels.to(torch.uint8).view(tiles, _TILE, groups, GROUP // 8, 2, 4).permute(0, 2, 3, 4, 1, 5)
    packed = (halves[:, :, :, 0] | halves[:, :, :, 1] << 4).reshape(tiles, groups, -1)
    scale, zero = scales_and_zeros.float().unbind(-1)
    both = torch.stack((scale, zero - MIDDLE * scale)).view(2, groups, tiles, _TILE).permute(2, 1, 0, 3)
    factors = both.to(torch.float16).contiguous().view(torch.uint8).view(tiles, groups, -1)
    return torch.cat((packed, factors), dim=2).contiguous()
