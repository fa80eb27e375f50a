"""One model, its KV pool, and the ragged step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from outrider.runtime.attention import STEP_KEYWORD, AttentionStep
from outrider.runtime.layout import ROW_MULTIPLE, StepLayout, lay_out
from outrider.runtime.pages import PAGE_SIZE, PagePool
from outrider.runtime.sequence import Segment, Sequence

if TYPE_CHECKING:
    from collections.abc import Sequence as Ordered

    from transformers import PreTrainedModel

    from outrider.runtime.kv import KVPool
    from outrider.wire.worker import ModelInfo, TokenizerFiles

MAX_ROWS = 1024


class Runtime:
    """A loaded model. One thread owns it.

    A position's logits are the same to the bit whatever else is in the batch, however its prefix was cut into
    steps, as a chain or in a tree, and after a rebuild; `numerics.self_test` proves it on the machine at
    hand.
    """

    page_size = PAGE_SIZE
    max_rows = MAX_ROWS

    def __init__(self, model: PreTrainedModel, pool: KVPool, num_pages: int) -> None:
        self._model = model
        self._device = model.device
        self._pool = pool
        self._pages = PagePool(num_pages)
        # Both filled by `loading.load_runtime`, once the self-test has run.
        self.info: ModelInfo
        self.tokenizer: TokenizerFiles

    @property
    def num_pages(self) -> int:
        """Pages of the pool."""
        return self._pages.num_pages

    @property
    def num_free_pages(self) -> int:
        """Pages that no sequence holds."""
        return self._pages.num_free

    def new_sequence(self) -> Sequence:
        """An empty sequence; it holds no memory until `reserve`."""
        return Sequence()

    def can_reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        """Whether `reserve` would succeed."""
        return self._pages.can_allocate(self._missing_pages(sequence, num_tokens))

    def reserve(self, sequence: Sequence, num_tokens: int) -> None:
        """Get pages for `num_tokens` rows beyond those in use. Raises `OutOfPages`."""
        missing = self._missing_pages(sequence, num_tokens)
        if missing > 0:
            behind = sequence.pages[-1] if sequence.pages else None
            sequence.pages.extend(self._pages.allocate(missing, behind))

    def truncate(self, sequence: Sequence, length: int) -> None:
        """Forget tokens from `length` on, and the pending tree. Pages stay with the sequence."""
        if not 0 <= length <= sequence.length:
            raise ValueError(f"cannot truncate a sequence of {sequence.length} tokens to {length}")
        self._drop_tree(sequence)
        sequence.length = length
        if sequence.broken_at is not None and sequence.broken_at >= length:
            sequence.broken_at = None

    def keep(self, sequence: Sequence, path: Ordered[int]) -> None:
        """Make the pending nodes of `path` (root first) tokens of the sequence, and forget the others."""
        expected_parent = -1
        for node in path:
            if sequence.parents[node] != expected_parent:
                raise ValueError(f"{list(path)} is not a path of the pending tree")
            expected_parent = node
        base, nodes = sequence.length, np.asarray(path, dtype=np.int64)
        moved = nodes != np.arange(len(nodes))
        if moved.any():
            slots = sequence.slots(base, base + len(sequence.parents))
            self._pool.move(slots[nodes[moved]], slots[np.flatnonzero(moved)])
        broken = [base + depth for depth, node in enumerate(path) if node in sequence.broken_nodes]
        if broken and sequence.broken_at is None:
            sequence.broken_at = broken[0]
        self._drop_tree(sequence)
        sequence.length = base + len(nodes)

    def release(self, sequence: Sequence) -> None:
        """Give all pages back; the sequence is empty and can be used again."""
        self._pages.free(sequence.pages)
        sequence.pages = []
        self.truncate(sequence, 0)

    def step(self, segments: Ordered[Segment]) -> list[np.ndarray]:
        """Run one forward over all segments.

        Several segments of one sequence are taken in order. Tokens must lie in [0, vocab_size).

        Returns:
            Per segment the logits asked for, float32 [len(wanted), logits_width]. A row that came out NaN or
            infinite, and every row behind it in its sequence, is NaN; other sequences are not touched.

        Raises:
            ValueError: more than `max_rows` rows, none, or rows that were not reserved; nothing has changed
            then.
        """
        self._check(segments)
        before = {
            id(segment.sequence): (segment.sequence, segment.sequence.length, len(segment.sequence.parents))
            for segment in reversed(segments)
        }
        try:
            layout = lay_out(list(segments))
            logits, finite = self._forward(layout)
        except BaseException:
            for sequence, length, num_nodes in before.values():
                sequence.length = length
                del sequence.parents[num_nodes:]
            raise
        if not finite.all():
            _mark_broken(segments, finite)
        return _split(segments, logits)

    @torch.inference_mode()
    def _forward(self, layout: StepLayout) -> tuple[np.ndarray, np.ndarray]:
        """Logits of the wanted rows, float32 [num_wanted, width]; which rows are finite, bool [num_rows]."""
        padding = -layout.num_rows % ROW_MULTIPLE
        tokens = torch.from_numpy(np.pad(layout.tokens, (0, padding))).to(self._device)
        positions = torch.from_numpy(np.pad(layout.positions, (0, padding))).to(self._device)
        step = AttentionStep.build(layout, self._pool, self._device)
        arguments = {
            "input_ids": tokens[None],
            "position_ids": positions[None],
            # A mask with four axes is passed through as it is; the attention has its own.
            "attention_mask": torch.zeros(1, 1, 1, 1, device=self._device),
            "use_cache": False,
            STEP_KEYWORD: step,
        }
        if len(layout.wanted):
            # The head's rows follow the same rule as all others.
            rows = np.pad(layout.wanted, (0, -len(layout.wanted) % ROW_MULTIPLE), mode="edge")
            output = self._model(**arguments, logits_to_keep=torch.from_numpy(rows).to(self._device))
            logits = output.logits[0, : len(layout.wanted)].float().cpu().numpy()
        else:
            self._model.base_model(**arguments)
            logits = np.empty((0, 0), dtype=np.float32)
        if step.finite is None:
            raise RuntimeError("the model did not call the attention that was set for it")
        return logits, step.finite.cpu().numpy()

    def _check(self, segments: Ordered[Segment]) -> None:
        num_rows = sum(len(segment.tokens) for segment in segments)
        if not 0 < num_rows <= self.max_rows:
            raise ValueError(f"a step takes 1 to {self.max_rows} rows, not {num_rows}")
        needed: dict[int, int] = {}
        for segment in segments:
            sequence = segment.sequence
            if segment.parents is None and (sequence.parents or id(sequence) in needed):
                raise ValueError("a sequence's chain comes first in a step, and not behind a pending tree")
            if segment.parents is not None and len(segment.parents) != len(segment.tokens):
                raise ValueError(f"{len(segment.tokens)} tokens with {len(segment.parents)} parents")
            rows = needed[id(sequence)] = needed.get(id(sequence), sequence.num_rows) + len(segment.tokens)
            if rows > sequence.capacity:
                raise ValueError(f"{rows} rows in a sequence with room for {sequence.capacity}: reserve")

    def _missing_pages(self, sequence: Sequence, num_tokens: int) -> int:
        return max(0, -(-(sequence.num_rows + num_tokens) // PAGE_SIZE) - len(sequence.pages))

    @staticmethod
    def _drop_tree(sequence: Sequence) -> None:
        sequence.parents.clear()
        sequence.broken_nodes.clear()


def _mark_broken(segments: Ordered[Segment], finite: np.ndarray) -> None:
    """Remember which rows broke. Rows of a segment lie together, and its sequence has moved on already."""
    first = 0
    remaining: dict[int, int] = {}
    for segment in segments:
        remaining[id(segment.sequence)] = remaining.get(id(segment.sequence), 0) + len(segment.tokens)
    for segment in segments:
        sequence, count = segment.sequence, len(segment.tokens)
        rows = finite[first : first + count]
        behind = remaining[id(sequence)] = remaining[id(sequence)] - count
        # Rows in use before this segment: all now, less those of the segments behind it, less its own.
        start = sequence.num_rows - behind - count
        for row in np.flatnonzero(~rows):
            place = start + int(row)
            if segment.parents is not None:
                sequence.broken_nodes.add(place - sequence.length)
            elif sequence.broken_at is None:
                sequence.broken_at = place
        first += count


def _split(segments: Ordered[Segment], logits: np.ndarray) -> list[np.ndarray]:
    """Cut the wanted rows by segment; rows at or behind a broken one become NaN."""
    parts: list[np.ndarray] = []
    first = 0
    for segment in segments:
        part = logits[first : first + len(segment.wanted)]
        first += len(segment.wanted)
        sequence = segment.sequence
        if sequence.broken_at is not None or sequence.broken_nodes:
            part = part.copy()
            for index, row in enumerate(segment.wanted):
                if _is_behind_broken(segment, row):
                    part[index] = np.nan
        parts.append(part)
    return parts


def _is_behind_broken(segment: Segment, row: int) -> bool:
    sequence = segment.sequence
    if segment.parents is None:
        # The chain ends where the sequence does: nothing but a tree can follow it in the same step.
        position = sequence.length - len(segment.tokens) + row
        return sequence.broken_at is not None and sequence.broken_at <= position
    if sequence.broken_at is not None:
        return True
    node = len(sequence.parents) - len(segment.tokens) + row
    return any(ancestor in sequence.broken_nodes for ancestor in sequence.path_to(node))
