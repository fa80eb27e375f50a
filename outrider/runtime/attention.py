"""Canonical attention: the same keys, in the same shapes, for a position however it was reached.

Registered with transformers as an attention implementation, so that a model's own code runs around it. Each
call writes the step's keys and values to the pool and attends tile by tile as `layout` says.

Query heads that share a key head are folded into the rows of a tile: a tile is then
[num_kv_heads, heads_per_group * 4, head_dim] against [num_kv_heads, num_keys, head_dim]. A kernel that works
tile by tile gives a tile the same bits alone and among others, which the start-up self-test proves for the
real machine, and keys are never repeated in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from outrider.runtime.layout import TILE, StepLayout, TileGroup, gathered

if TYPE_CHECKING:
    from outrider.runtime.kv import KVPool

IMPLEMENTATION = "outrider"
STEP_KEYWORD = "outrider_step"

# Keywords of transformers' models that do not change the result here: the step has its own positions, and no
# model runs with dropout.
_IGNORED = frozenset({"dropout", "position_ids", "use_cache", "cache"})


@dataclass(slots=True)
class AttentionStep:
    """One step, on the device. Shared by all layers."""

    pool: KVPool
    slots: torch.Tensor  # int64 [num_rows]
    # int64 [num_padded_rows]: the tile of each row, and its place in it. Padding rows read what row 0 gets.
    tile: torch.Tensor
    place: torch.Tensor
    num_tiles: int
    groups: tuple[_DeviceGroup, ...]
    # bool [num_rows], set by the last layer: rows that are neither NaN nor infinite. Such a row stays so in
    # all layers behind the one where it broke, since each adds to it.
    finite: torch.Tensor | None = None
    # [num_tiles, num_kv_heads, heads_per_group, TILE, head_dim], made by the first layer and written by each:
    # the same places every time, so that missing rows stay zero.
    _queries: torch.Tensor | None = None
    _rotation: tuple[torch.Tensor, torch.Tensor] | None = None

    @classmethod
    def build(cls, layout: StepLayout, num_padded: int, pool: KVPool, device: torch.device) -> AttentionStep:
        """Put a layout on the device."""
        place = np.zeros((2, num_padded), dtype=np.int64)
        groups = []
        first = 0
        for group in gathered(layout.groups):
            place[0, group.rows] = first + group.offsets // TILE
            place[1, group.rows] = group.offsets % TILE
            groups.append(_DeviceGroup.build(group, first, device))
            first += len(group.positions)
        places = torch.from_numpy(place).to(device)
        return cls(
            pool=pool,
            slots=torch.from_numpy(layout.slots).to(device),
            tile=places[0],
            place=places[1],
            num_tiles=first,
            groups=tuple(groups),
        )

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,  # [num_padded_rows, num_heads, head_dim]
        keys_values: torch.Tensor,  # [num_padded_rows, 2, num_kv_heads, head_dim]
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Store the rows' keys and values and attend; [num_padded_rows, num_heads, head_dim]."""
        num_rows = len(self.slots)
        keys_values = keys_values[:num_rows]
        self.pool.write(layer, self.slots, keys_values)
        if layer == self.pool.shape.num_layers - 1:
            self.finite = torch.isfinite(keys_values).flatten(1).all(1)
        num_kv_heads = keys_values.shape[2]
        num_padded, num_heads, head_dim = queries.shape
        # Query head h reads key head h // heads_per_group.
        shape = (num_padded, num_kv_heads, num_heads // num_kv_heads, head_dim)
        if self._queries is None:
            self._queries = queries.new_zeros(self.num_tiles, *shape[1:3], TILE, head_dim)
        # [tile, place, kv head, head of the group, dim]
        by_place = self._queries.permute(0, 3, 1, 2, 4)
        by_place.index_put_((self.tile[:num_rows], self.place[:num_rows]), queries.reshape(shape)[:num_rows])
        folded = self._queries.flatten(2, 3)
        parts = []
        for group in self.groups:
            keys, values = self.pool.read(layer, group.keys)
            mask = group.mask(shape[2], window, queries.dtype)
            parts.append(_attend(folded[group.tiles], keys, values, mask, scale, softcap))
        result = parts[0] if len(parts) == 1 else torch.cat(parts)
        by_head = result.view(self.num_tiles, num_kv_heads, shape[2], TILE, head_dim)
        rows = by_head.permute(0, 3, 1, 2, 4)[self.tile, self.place]
        return rows.view(num_padded, num_heads, head_dim)

    def rotation(self, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Factors of the rotary embedding, for `x * cos + swapped_halves(x) * sin`.

        Both are [num_padded_rows, 1, head_dim].
        `cos` and `sin` are the model's own, [1, num_padded_rows, head_dim]; the minus of the first half is in
        the second factor.
        """
        if self._rotation is None:
            half = sin.shape[-1] // 2
            signed = torch.cat((-sin[0, :, :half], sin[0, :, half:]), dim=-1)
            self._rotation = cos[0].unsqueeze(1), signed.unsqueeze(1)
        return self._rotation


class _DeviceGroup:
    """A tile group with its masks, which differ between layers only by the sliding window."""

    def __init__(
        self, first: int, positions: torch.Tensor, keys: slice | torch.Tensor, num_keys: int
    ) -> None:
        self.tiles = slice(first, first + len(positions))
        self.keys = keys
        self._positions = positions
        self._num_keys = num_keys
        self._masks: dict[tuple[int, int | None], torch.Tensor] = {}

    @classmethod
    def build(cls, group: TileGroup, first: int, device: torch.device) -> _DeviceGroup:
        slots = group.key_slots
        num_keys = slots.shape[-1]
        keys: slice | torch.Tensor
        if slots.ndim == 1 and slots[-1] - slots[0] == num_keys - 1 and bool((np.diff(slots) == 1).all()):
            keys = slice(int(slots[0]), int(slots[0]) + num_keys)
        else:
            keys = torch.from_numpy(slots).to(device)
        return cls(first, torch.from_numpy(group.positions).to(device), keys, num_keys)

    def mask(self, heads_per_group: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """0 where a query may look, -inf elsewhere: [num_tiles, 1, heads_per_group * TILE, num_keys]."""
        found = self._masks.get((heads_per_group, window))
        if found is None:
            keys = torch.arange(self._num_keys, device=self._positions.device)
            hidden = keys > self._positions[..., None]
            if window is not None:
                hidden |= keys <= self._positions[..., None] - window
            found = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
                hidden, float("-inf")
            )
            found = found.repeat(1, heads_per_group, 1).unsqueeze(1)
            self._masks[heads_per_group, window] = found
        return found


def canonical_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    **keywords: object,
) -> tuple[torch.Tensor, None]:
    """Attend for all rows of a step.

    Args:
        module: the layer; `layer_idx` names its place in the pool.
        query: [1, num_heads, num_padded_rows, head_dim].
        key: [1, num_kv_heads, num_padded_rows, head_dim].
        value: as key.
        attention_mask: not used; the step knows what each row may see.
        scaling: factor of the scores; head_dim ** -0.5 when None.
        softcap: scores become softcap * tanh(score / softcap).
        sliding_window: a row sees this many keys, its own included.
        keywords: must hold the step under `outrider_step`.

    Returns:
        [1, num_padded_rows, num_heads, head_dim], and no weights.

    Raises:
        TypeError: a keyword that would change the result and is not implemented.
    """
    del attention_mask
    step = keywords.pop(STEP_KEYWORD)
    for name, setting in keywords.items():
        harmless = name in _IGNORED or name.startswith("output_") or (name == "is_causal" and setting is True)
        if setting is not None and not harmless:
            raise TypeError(f"attention keyword {name!r} is not implemented; the model can not be served")
    if not isinstance(step, AttentionStep):
        raise TypeError(f"{STEP_KEYWORD} must be an AttentionStep")

    return step.attend(
        int(module.layer_idx),  # type: ignore[arg-type]  # every attention layer of transformers has one
        query[0].transpose(0, 1),
        torch.stack((key[0].transpose(0, 1), value[0].transpose(0, 1)), dim=1),
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        softcap=softcap,
    ).unsqueeze(0), None


def _attend(
    queries: torch.Tensor,  # [num_tiles, num_kv_heads, rows, head_dim]
    keys: torch.Tensor,  # [num_kv_heads, num_keys, head_dim], or with a first axis of num_tiles
    values: torch.Tensor,
    mask: torch.Tensor,  # [num_tiles, 1, rows, num_keys]
    scale: float,
    softcap: float | None,
) -> torch.Tensor:
    if softcap is None:
        shape = (len(queries), *keys.shape[-3:])
        return scaled_dot_product_attention(
            queries, keys.expand(shape), values.expand(shape), attn_mask=mask, scale=scale
        )
    # The fused kernel has no softcap: two matrix products per tile, softmax in float32.
    scores = torch.matmul(queries, keys.transpose(-1, -2)) * scale
    scores = torch.tanh(scores / softcap) * softcap + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(queries.dtype)
    return torch.matmul(weights, values)


AttentionInterface.register(IMPLEMENTATION, canonical_attention)
