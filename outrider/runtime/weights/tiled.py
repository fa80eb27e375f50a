"""bfloat16 linear layers on a product of our own, where the CPU has its instructions."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import structlog
import torch
from torch import nn

from outrider.runtime.compiling import NativeLibrary, NoNativeLibrary, compiled

_SOURCE = Path(__file__).with_name("tiled.cpp")
_NEEDED = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512_bf16"})
_log = structlog.get_logger(__name__)

# As in tiled.cpp.
_TILE = 16


@functools.cache
def tiled_library() -> NativeLibrary:
    """The compiled product.

    Raises:
        NoNativeLibrary: the CPU lacks instructions, there is no compiler, it failed, or torch brings another
            OpenMP library than GNU's.
    """
    library = compiled(_SOURCE, _NEEDED)
    try:
        library.outrider_tiled_product.restype = None
    except AttributeError as error:
        raise NoNativeLibrary(f"{_SOURCE.name} was compiled without its function") from error
    library.outrider_tiled_product.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3
    return library


@functools.cache
def obstacle_to_tiles() -> str | None:
    """Why `TiledLinear` can not be had here; None when it can."""
    try:
        tiled_library()
    except NoNativeLibrary as error:
        _log.info("bfloat16 runs on oneDNN's products, which are slower for few rows", reason=str(error))
        return str(error)
    return None


class TiledLinear(nn.Module):
    """A bfloat16 linear layer; a row has the same bits for any number of rows and threads.

    Sums are float32 and run over the inputs in their order, two at a time.

    Raises:
        NoNativeLibrary: as `tiled_library`.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        bias: torch.Tensor | None = linear.bias
        self.bias = None if bias is None else bias.detach().float().contiguous()
        shape = (self.out_features // _TILE, _TILE, self.in_features // 2, 2)
        self._tiles = linear.weight.detach().reshape(shape).permute(0, 2, 1, 3).contiguous()
        self._product = tiled_library().outrider_tiled_product

    @staticmethod
    def takes(linear: nn.Linear) -> bool:
        """Whether the layer's shape fits the tiles."""
        return linear.out_features % _TILE == 0 and linear.in_features % 2 == 0

    @property
    def weight_bytes(self) -> int:
        """Bytes that a forward reads."""
        return int(self._tiles.nbytes)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., in_features] -> [..., out_features]."""
        rows = rows.contiguous()
        results = torch.empty((*rows.shape[:-1], self.out_features), dtype=torch.bfloat16)
        self._product(
            rows.data_ptr(),
            self._tiles.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
            results.data_ptr(),
            rows.numel() // self.in_features,
            self.in_features,
            self.out_features,
        )
        return results
