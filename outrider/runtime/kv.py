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
        self._layers = self._data.unbind(0)

    def write(self, layer: int, slots: torch.Tensor, keys_values: torch.Tensor) -> None:
        """Store rows, non-finite numbers as 0.

        `slots` is int64 [num_rows]; `keys_values` is [num_rows, 2, num_kv_heads, head_dim].
        """
        self._layers[layer].index_copy_(1, slots, keys_values.transpose(0, 1).nan_to_num(0.0, 0.0, 0.0))

    def read(self, layer: int, slots: slice | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [..., num_kv_heads, num_keys, head_dim] of slots [..., num_keys].

        A slice is a view, a tensor of slots a copy.
        """
        stored = self._layers[layer]
        found = stored[:, slots] if isinstance(slots, slice) else _gather(stored, slots)
        keys, values = found.transpose(-2, -3)
        return keys, values

    def storage(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and all values of a layer, [num_slots, num_kv_heads, head_dim] each, to write to."""
        keys, values = self._layers[layer]
        return keys, values

    def move(self, source: np.ndarray, target: np.ndarray) -> None:
        """Copy rows from slots to slots; the two may overlap."""
        device = self._data.device
        rows = self._data.index_select(2, torch.from_numpy(source).to(device))
        self._data.index_copy_(2, torch.from_numpy(target).to(device), rows)


def _gather(stored: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    return stored.index_select(1, slots.flatten()).view(2, *slots.shape, *stored.shape[2:])


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    # numpy's zeros come from calloc: memory that is not used yet is not resident yet.
    numbers = {1: np.uint8, 2: np.uint16, 4: np.uint32}[dtype.itemsize]
    return torch.from_numpy(np.zeros(size, dtype=numbers)).view(dtype)
