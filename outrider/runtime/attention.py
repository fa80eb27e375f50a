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

from outrider.runtime.layout import TILE, StepLayout, TileGroup

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
    queries: torch.Tensor  # int64 [num_rows], where each row goes among all tiles' queries
    num_tiles: int
    groups: tuple[_DeviceGroup, ...]
    # bool [num_rows], set by the last layer: rows that are neither NaN nor infinite. Such a row stays so in
    # all layers behind the one where it broke, since each adds to it.
    finite: torch.Tensor | None = None

    @classmethod
    def build(cls, layout: StepLayout, pool: KVPool, device: torch.device) -> AttentionStep:
        """Put a layout on the device."""
        queries = np.empty(layout.num_rows, dtype=np.int64)
        groups = []
        first = 0
        for group in layout.groups:
            queries[group.rows] = first * TILE + group.offsets
            groups.append(_DeviceGroup.build(group, first, device))
            first += len(group.positions)
        return cls(
            pool=pool,
            slots=torch.from_numpy(layout.slots).to(device),
            queries=torch.from_numpy(queries).to(device),
            num_tiles=first,
            groups=tuple(groups),
        )


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
        start = int(slots[0])
        consecutive = slots[-1] - start == len(slots) - 1 and bool((np.diff(slots) == 1).all())
        keys = slice(start, start + len(slots)) if consecutive else torch.from_numpy(slots).to(device)
        return cls(first, torch.from_numpy(group.positions).to(device), keys, len(slots))

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

    layer = int(module.layer_idx)  # type: ignore[arg-type]  # every attention layer of transformers has one
    num_heads, num_padded, head_dim = query.shape[1:]
    num_kv_heads, num_rows = key.shape[1], len(step.slots)
    heads_per_group = num_heads // num_kv_heads
    scale = head_dim**-0.5 if scaling is None else scaling

    keys, values = (rows[0].transpose(0, 1)[:num_rows] for rows in (key, value))
    step.pool.write(layer, step.slots, keys, values)
    if layer == step.pool.shape.num_layers - 1:
        step.finite = torch.isfinite(keys).flatten(1).all(1) & torch.isfinite(values).flatten(1).all(1)

    tiles = query.new_zeros(step.num_tiles * TILE, num_heads, head_dim)
    tiles.index_copy_(0, step.queries, query[0].transpose(0, 1)[:num_rows])
    # [tile, row, kv head, head of the group, dim] -> [tile, kv head, head of the group * row, dim]
    folded = tiles.view(step.num_tiles, TILE, num_kv_heads, heads_per_group, head_dim).permute(0, 2, 3, 1, 4)
    folded = folded.reshape(step.num_tiles, num_kv_heads, heads_per_group * TILE, head_dim)
    result = torch.empty_like(folded)
    for group in step.groups:
        group_keys, group_values = step.pool.read(layer, group.keys)
        mask = group.mask(heads_per_group, sliding_window, query.dtype)
        result[group.tiles] = _attend(folded[group.tiles], group_keys, group_values, mask, scale, softcap)
    unfolded = result.view(step.num_tiles, num_kv_heads, heads_per_group, TILE, head_dim).permute(
        0, 3, 1, 2, 4
    )
    rows = unfolded.reshape(step.num_tiles * TILE, num_heads, head_dim).index_select(0, step.queries)
    if num_padded == num_rows:
        return rows.unsqueeze(0), None
    padded = rows.new_zeros(1, num_padded, num_heads, head_dim)
    padded[0, :num_rows] = rows
    return padded, None


def _attend(
    queries: torch.Tensor,  # [num_tiles, num_kv_heads, rows, head_dim]
    keys: torch.Tensor,  # [num_kv_heads, num_keys, head_dim]
    values: torch.Tensor,
    mask: torch.Tensor,  # [num_tiles, 1, rows, num_keys]
    scale: float,
    softcap: float | None,
) -> torch.Tensor:
    if softcap is None:
        shape = (len(queries), *keys.shape)
        return scaled_dot_product_attention(
            queries, keys.expand(shape), values.expand(shape), attn_mask=mask, scale=scale
        )
    # The fused kernel has no softcap: two matrix products per tile, softmax in float32.
    scores = torch.matmul(queries, keys.transpose(-1, -2)) * scale
    scores = torch.tanh(scores / softcap) * softcap + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(queries.dtype)
    return torch.matmul(weights, values)


AttentionInterface.register(IMPLEMENTATION, canonical_attention)
