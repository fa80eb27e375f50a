"""Tiles and key buckets follow from absolute positions alone."""

from __future__ import annotations

import numpy as np

from outrider.runtime.layout import lay_out
from outrider.runtime.sequence import Segment, Sequence


def test_the_worked_example() -> None:
    sequence = Sequence(pages=[3, 4], length=66)
    layout = lay_out([Segment(sequence, (1, 2, 3, 4), wanted=(0, 3))])
    assert layout.positions.tolist() == [66, 67, 68, 69]
    assert layout.slots.tolist() == [4 * 64 + offset for offset in (2, 3, 4, 5)]
    assert layout.wanted.tolist() == [0, 3]
    (group,) = layout.groups
    assert group.positions[:, 0].tolist() == [64, 68]
    assert group.offsets.tolist() == [2, 3, 4, 5]
    assert group.key_slots.tolist() == list(range(3 * 64, 5 * 64))
    assert sequence.length == 70


def test_rows_of_two_pages_read_their_own_buckets() -> None:
    sequence = Sequence(pages=[0, 1], length=62)
    layout = lay_out([Segment(sequence, (1, 2, 3))])
    assert [len(group.key_slots) for group in layout.groups] == [64, 128]
    assert [group.rows.tolist() for group in layout.groups] == [[0, 1], [2]]


def test_a_node_shared_by_two_paths_is_one_row_and_each_path_reads_its_own_chain() -> None:
    # Root 0 has children 1 and 2; node 3 hangs below 2.
    sequence = Sequence(pages=[0], length=10)
    layout = lay_out([Segment(sequence, (5, 6, 7, 8), parents=(-1, 0, 0, 2))])
    assert layout.positions.tolist() == [10, 11, 11, 12]
    rows = [row for group in layout.groups for row in group.rows.tolist()]
    assert sorted(rows) == [0, 1, 2, 3]
    chains = {tuple(group.rows.tolist()): group.key_slots[10:13].tolist() for group in layout.groups}
    assert chains[(0, 1)][:2] == [10, 11]
    assert chains[(2, 3)] == [10, 12, 13]


def test_a_tree_grows_over_several_steps() -> None:
    sequence = Sequence(pages=[0], length=10)
    lay_out([Segment(sequence, (5, 6), parents=(-1, -1))])
    layout = lay_out([Segment(sequence, (7, 8), parents=(0, 1))])
    assert layout.positions.tolist() == [11, 11]
    assert layout.slots.tolist() == [12, 13]
    assert np.array_equal(sequence.parents, [-1, -1, 0, 1])
    assert [group.key_slots[10:12].tolist() for group in layout.groups] == [[10, 12], [11, 13]]
