"""Where each row of a step goes: positions, KV slots, and the canonical query tiles.

The logits of a position must not depend on what else is in the batch, so attention never sees the batch. Rows
are put into tiles of 4 queries aligned to the absolute position (positions 8..11 are one tile, whichever of
them are present), and a tile reads as many keys as its position says, rounded up to 64: never more because a
neighbour is longer, never fewer because the step is short. Missing rows of a tile are zero queries whose
result is dropped.

Example: a session with 66 tokens held verifies 4 more, positions 66..69. Tile 16 (positions 64..67) gets rows
2 and 3, tile 17 (68..71) rows 0 and 1; both read keys 0..127, and a mask hides the keys behind each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from outrider.runtime.pages import PAGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from outrider.runtime.sequence import Segment, Sequence

TILE = 4

# Groups of up to so many tiles are worth copying keys for.
_FEW_TILES = 4


@dataclass(frozen=True, slots=True)
class TileGroup:
    """Tiles that read the same keys, or each its own of the same number."""

    # int64 [num_keys] for all tiles, or [num_tiles, num_keys]: slot of each key, in the order of the chain
    # that the rows see.
    key_slots: np.ndarray
    # int64 [num_tiles, TILE]: absolute position of each query.
    positions: np.ndarray
    # int64 [num_rows]: rows of the step, and where each goes among num_tiles * TILE queries.
    rows: np.ndarray
    offsets: np.ndarray


@dataclass(frozen=True, slots=True)
class StepLayout:
    """A whole step. Rows are in the order of the segments."""

    tokens: np.ndarray  # int64 [num_rows]
    positions: np.ndarray  # int64 [num_rows]
    slots: np.ndarray  # int64 [num_rows], where each row's key and value are written
    wanted: np.ndarray  # int64 [num_wanted], rows whose logits are asked for
    groups: tuple[TileGroup, ...]

    @property
    def num_rows(self) -> int:
        """Rows before padding."""
        return len(self.tokens)


def gathered(groups: Iterable[TileGroup]) -> list[TileGroup]:
    """Put small groups that read equally many keys together, so that one kernel serves many sessions.

    Their keys have to be copied side by side for that, which pays for a few tiles; groups of many tiles, such
    as prompts, stay as they are, and so does one that finds no company.
    """
    small: dict[int, list[TileGroup]] = {}
    others: list[TileGroup] = []
    for group in groups:
        if len(group.positions) <= _FEW_TILES:
            small.setdefault(len(group.key_slots), []).append(group)
        else:
            others.append(group)
    return [*others, *(_joined(company) for company in small.values())]


def _joined(groups: list[TileGroup]) -> TileGroup:
    if len(groups) == 1:
        return groups[0]
    counts = [len(group.positions) for group in groups]
    firsts = np.cumsum([0, *counts[:-1]]) * TILE
    return TileGroup(
        key_slots=np.repeat(np.stack([group.key_slots for group in groups]), counts, axis=0),
        positions=np.concatenate([group.positions for group in groups]),
        rows=np.concatenate([group.rows for group in groups]),
        offsets=np.concatenate([group.offsets + first for group, first in zip(groups, firsts, strict=True)]),
    )


def lay_out(segments: list[Segment]) -> StepLayout:
    """Lay a step out, and move each sequence on to where it stands when the step is done."""
    tokens: list[int] = []
    positions: list[np.ndarray] = []
    slots: list[np.ndarray] = []
    wanted: list[int] = []
    groups: list[TileGroup] = []
    for segment in segments:
        first = len(tokens)
        place = _place_chain if segment.parents is None else _place_tree
        segment_positions, segment_slots, segment_groups = place(segment, first)
        tokens.extend(segment.tokens)
        wanted.extend(first + index for index in segment.wanted)
        positions.append(segment_positions)
        slots.append(segment_slots)
        groups.extend(segment_groups)
    return StepLayout(
        tokens=np.asarray(tokens, dtype=np.int64),
        positions=np.concatenate(positions),
        slots=np.concatenate(slots),
        wanted=np.asarray(wanted, dtype=np.int64),
        groups=tuple(groups),
    )


def _place_chain(segment: Segment, first: int) -> tuple[np.ndarray, np.ndarray, list[TileGroup]]:
    sequence = segment.sequence
    start, stop = sequence.length, sequence.length + len(segment.tokens)
    sequence.length = stop
    positions = np.arange(start, stop)
    rows = np.arange(first, first + len(segment.tokens))
    return positions, sequence.slots(start, stop), list(_groups(positions, rows, sequence.slots))


def _place_tree(segment: Segment, first: int) -> tuple[np.ndarray, np.ndarray, list[TileGroup]]:
    sequence = segment.sequence
    base, first_node = sequence.length, len(sequence.parents)
    sequence.parents.extend(segment.parents or ())
    depths: list[int] = []
    for parent in sequence.parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    num_nodes = len(sequence.parents)
    node_slots = sequence.slots(base, base + num_nodes)
    positions = base + np.asarray(depths[first_node:], dtype=np.int64)
    groups: list[TileGroup] = []
    placed = [False] * num_nodes
    for leaf in sorted(set(range(num_nodes)) - set(sequence.parents)):
        path = sequence.path_to(leaf)
        # A node shared by several paths is one row; the first path that holds it gives it its keys.
        new = [node for node in path if node >= first_node and not placed[node]]
        for node in new:
            placed[node] = True
        if new:
            nodes = np.asarray(new) - first_node
            groups.extend(_groups(positions[nodes], first + nodes, _PathSlots(sequence, node_slots[path])))
    return positions, node_slots[first_node:], groups


@dataclass(frozen=True, slots=True)
class _PathSlots:
    """Slots of the chain that one path would be: the tokens held, then the path's nodes."""

    sequence: Sequence
    nodes: np.ndarray  # int64 [depth]

    def __call__(self, start: int, stop: int) -> np.ndarray:
        held = self.sequence.slots(start, min(stop, self.sequence.length))
        tail = stop - start - len(held) - len(self.nodes)
        # What lies behind the path is masked: any slot serves.
        padding = np.full(max(0, tail), self.nodes[-1])
        return np.concatenate([held, self.nodes, padding])[: stop - start]


def _groups(
    positions: np.ndarray, rows: np.ndarray, slots_of: Callable[[int, int], np.ndarray]
) -> Iterator[TileGroup]:
    """Cut ascending positions into groups by KV bucket."""
    buckets = positions // PAGE_SIZE
    for bucket in np.unique(buckets):
        inside = buckets == bucket
        first_tile = int(positions[inside][0]) // TILE
        last_tile = int(positions[inside][-1]) // TILE
        num_tiles = last_tile - first_tile + 1
        yield TileGroup(
            key_slots=slots_of(0, (int(bucket) + 1) * PAGE_SIZE),
            positions=(first_tile * TILE + np.arange(num_tiles * TILE)).reshape(num_tiles, TILE),
            rows=rows[inside],
            offsets=positions[inside] - first_tile * TILE,
        )
