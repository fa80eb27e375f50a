"""Keys and values of all sequences, in one preallocated pool per model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from outrider.runtime.pages import PAGE_SIZE


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one token costs."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def page_bytes(self) -> int:
        """Bytes of one page: keys and values of all layers."""
        return PAGE_SIZE * self.num_layers * 2 * self.num_kv_heads * self.head_dim * self.dtype.itemsize


class KVPool:
    """Storage [num_layers, 2, num_slots, num_kv_heads, head_dim]; index 0 of the second axis is keys, 1
    values.

    It never holds NaN or infinity: a masked key has weight 0, and 0 * NaN would still be NaN, so that one
    broken row could reach whoever reads or inherits its page.
    """

    def __init__(self, shape: KVShape, num_pages: int, device: torch.device) -> None:
        self.shape = shape
        size = (shape.num_layers, 2, num_pages * PAGE_SIZE, shape.num_kv_heads, shape.head_dim)
        self._data = _zeros(size, shape.dtype, device)

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store rows, non-finite numbers as 0.

        `slots` is int64 [num_rows]; keys and values are [num_rows, num_kv_heads, head_dim].
        """
        self._data[layer, 0].index_copy_(0, slots, keys.nan_to_num(0.0, 0.0, 0.0))
        self._data[layer, 1].index_copy_(0, slots, values.nan_to_num(0.0, 0.0, 0.0))

    def read(self, layer: int, slots: slice | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [num_kv_heads, num_keys, head_dim]; a slice is a view, a tensor of slots a copy."""
        keys, values = self._data[layer, 0], self._data[layer, 1]
        if isinstance(slots, slice):
            return keys[slots].transpose(0, 1), values[slots].transpose(0, 1)
        return keys.index_select(0, slots).transpose(0, 1), values.index_select(0, slots).transpose(0, 1)

    def move(self, source: np.ndarray, target: np.ndarray) -> None:
        """Copy rows from slots to slots; the two may overlap."""
        device = self._data.device
        rows = self._data.index_select(2, torch.from_numpy(source).to(device))
        self._data.index_copy_(2, torch.from_numpy(target).to(device), rows)


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    # numpy's zeros come from calloc: memory that is not used yet is not resident yet.
    numbers = {1: np.uint8, 2: np.uint16, 4: np.uint32}[dtype.itemsize]
    return torch.from_numpy(np.zeros(size, dtype=numbers)).view(dtype)
