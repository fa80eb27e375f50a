"""One round: the target's rows, the judgement, and the KV that it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outrider.rpc.errors import Internal
from outrider.runtime.sequence import Segment
from outrider.sampling import ROOT, DraftTree, TokenSampler, judge
from outrider.wire.validator import Verdict
from outrider.worker.role import rows_to_take

if TYPE_CHECKING:
    import numpy as np

    from outrider.runtime.runtime import Runtime
    from outrider.worker.session import Session


def fitted(
    tree: DraftTree, *, vocab_size: int, depth: int, max_nodes: int
) -> tuple[DraftTree, tuple[int, ...]]:
    """The part of `tree` that can be put to the target, and the index in `tree` of each of its nodes.

    Dropped are ids outside the vocabulary with what hangs below them, nodes deeper than `depth`, and nodes
    beyond the first `max_nodes`.

    Example: tokens (5, 9999, 6, 7) with parents (-1, -1, 0, 0), 400 ids and depth 2 leave (5, 6, 7) with
    parents (-1, 0, 0), and nodes (0, 2, 3).
    """
    renumbered = {ROOT: ROOT}
    kept: list[int] = []
    depths = tree.depths
    for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True)):
        fits = 0 <= token < vocab_size and depths[node] <= depth and len(kept) < max_nodes
        if fits and parent in renumbered:
            renumbered[node] = len(kept)
            kept.append(node)
    tokens = tuple(tree.tokens[node] for node in kept)
    parents = tuple(renumbered[tree.parents[node]] for node in kept)
    return DraftTree(tokens, parents), tuple(kept)


class VerifyJob:
    """Runs what the KV lacks of the committed tokens, with the tree behind the last of them, and judges.

    A chain is appended to the committed tokens and cut back afterwards; a true tree hangs below them as
    pending nodes, of which the accepted path is kept. The target's own token has no KV yet: it opens the next
    round.

    Example: 10 tokens are committed, KV holds 9, the chain has 3. Rows run for positions 9..12, and their
    logits choose tokens 10..13. With 2 accepted, 3 tokens are committed (13 in all) and KV keeps 12.
    """

    def __init__(
        self,
        runtime: Runtime,
        session: Session,
        tree: DraftTree,
        nodes: tuple[int, ...],
        *,
        max_length: int,
    ) -> None:
        """Verify `tree`, whose nodes the sender numbered `nodes`; the context holds `max_length` tokens."""
        self._runtime = runtime
        self._session = session
        self._tree = tree
        self._nodes = nodes
        self._max_length = max_length

    def plan(self, room: int, prompt_room: int) -> list[Segment]:
        """The next stretch of committed tokens; the last one comes with the tree."""
        session, sequence = self._session, self._session.sequence
        num_missing = session.length - sequence.length
        num_rows = rows_to_take(num_missing, room, prompt_room)
        if num_rows == num_missing and num_missing + self._tree.num_nodes <= room:
            return self._verification(tuple(session.tokens[sequence.length :]))
        num_rows = min(num_rows, num_missing - 1)
        stretch = tuple(session.tokens[sequence.length : sequence.length + num_rows])
        return [Segment(sequence, stretch)] if stretch else []

    def advance(self, logits: Sequence[np.ndarray]) -> Verdict | None:
        """Judge once the rows behind the committed tokens have run."""
        session, sequence, tree = self._session, self._session.sequence, self._tree
        base_length = session.length
        if sequence.length < base_length:
            return None
        # One array for a chain, two for a tree: the row behind the last committed token, then one per node.
        rows = [row for part in logits for row in part]
        sampler: TokenSampler = session.state
        judgement = judge(tree, lambda node: rows[node + 1], sampler, max_length=self._max_length)
        if not judgement.committed:
            raise Internal("the round committed nothing")
        if tree.is_chain:
            self._runtime.truncate(sequence, base_length + judgement.accepted)
        else:
            self._runtime.keep(sequence, judgement.path)
        session.commit(judgement.committed)
        return Verdict(
            committed=judgement.committed,
            accepted=judgement.accepted,
            raw_accepted=judgement.raw_accepted,
            drafted=tree.num_nodes,
            path=tuple(self._nodes[node] for node in judgement.path),
            logprobs=judgement.logprobs,
            finish_reason=judgement.finish_reason,
            prefill_only=tree.num_nodes == 0 and base_length == session.prompt_length,
        )

    def restart(self) -> None:
        """Nothing is remembered between forwards but what the sequence holds."""

    def shrink(self) -> bool:
        """Verify without the tree."""
        had_tree = self._tree.num_nodes > 0
        self._tree, self._nodes = DraftTree.empty(), ()
        return had_tree

    def abandon(self) -> None:
        """Between forwards the KV holds committed tokens only."""

    def _verification(self, missing: tuple[int, ...]) -> list[Segment]:
        sequence, tree = self._session.sequence, self._tree
        last = len(missing) - 1
        if tree.is_chain:
            wanted = tuple(range(last, last + 1 + tree.num_nodes))
            return [Segment(sequence, missing + tree.tokens, wanted=wanted)]
        return [
            Segment(sequence, missing, wanted=(last,)),
            Segment(sequence, tree.tokens, parents=tree.parents, wanted=tuple(range(tree.num_nodes))),
        ]
