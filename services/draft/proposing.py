"""One proposal: bring the KV up to the session's tokens, then draft token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outrider.runtime.sequence import Segment
from outrider.sampling import ROOT, DraftTree
from outrider.wire.draft import Proposal
from outrider.wire.generation import DraftSource
from outrider.worker.role import rows_to_take

if TYPE_CHECKING:
    import numpy as np

    from outrider.runtime.runtime import Runtime
    from outrider.worker.session import Session
    from services.draft.mirror import Mirror


class ProposeJob:
    """Drafts `depth` tokens per candidate; with several candidates the first position branches.

    One candidate is a chain behind the tokens held. Several are a pending tree: the best ids at the first
    position, each going on greedily under the shared noise; at the end the first candidate's rows stay, being
    the likeliest. Nothing follows an end id.

    A candidate also ends with the token at which the product of confidence along it falls below
    `min_confidence`: whatever came next would be reached with less than that. The token itself stays: its
    logits are paid, and it costs the target one row more. So each candidate has one token at least.

    Example: the KV was aligned to [1, 2, 3, 7, 8], of which 7 and 8 were guesses; the session now stands at
    [1, 2, 3, 7, 9]. Four rows are right and stay; 9 is read, and its logits give the first drafted token.
    """

    def __init__(
        self,
        runtime: Runtime,
        session: Session,
        guesses: Sequence[int],
        *,
        depth: int,
        width: int,
        min_confidence: float = 0.0,
    ) -> None:
        """Draft behind the session's tokens and `guesses`, ids that others assume or propose."""
        self._runtime = runtime
        self._session = session
        self._mirror: Mirror = session.state
        self._guesses = tuple(guesses)
        self._max_depth = depth
        self._width = width
        self._min_confidence = min_confidence
        # The tree drafted so far, parents before children.
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._logprobs: list[float] = []
        # Of each node: the product along its path.
        self._confidences: list[float] = []
        self._depth = 0
        # Nodes that were drafted last and are to be read next.
        self._frontier: list[int] = []
        # Node -> its index among the sequence's pending nodes.
        self._pending: dict[int, int] = {}
        self._align([*session.tokens, *guesses])

    def plan(self, room: int, prompt_room: int) -> list[Segment]:
        """Tokens that the KV lacks, or the nodes that were drafted last."""
        sequence, context = self._session.sequence, self._mirror.context
        num_missing = len(context) - sequence.length
        if num_missing:
            num_rows = rows_to_take(num_missing, room, prompt_room)
            stretch = tuple(context[sequence.length : sequence.length + num_rows])
            wanted = (num_rows - 1,) if num_rows == num_missing else ()
            return [Segment(sequence, stretch, wanted=wanted)] if stretch else []
        if len(self._frontier) > room:
            return []
        parents = [self._parents[node] for node in self._frontier]
        return [
            Segment(
                sequence,
                tuple(self._tokens[node] for node in self._frontier),
                parents=tuple(ROOT if parent == ROOT else self._pending[parent] for parent in parents),
                wanted=tuple(range(len(self._frontier))),
            )
        ]

    def advance(self, logits: Sequence[np.ndarray]) -> Proposal | None:
        """Draft one token behind each row that was asked for."""
        if self._session.sequence.length < len(self._mirror.context):
            return None
        drafted: list[int] = []
        if self._width > 1:
            self._pending.update({node: len(self._pending) + i for i, node in enumerate(self._frontier)})
        width = 1 if self._frontier else self._width
        for parent, row in zip(self._frontier or [ROOT], logits[0], strict=True):
            drafted.extend(self._draft(parent, row, width))
        self._depth += 1
        self._frontier = [node for node in drafted if self._goes_on(node)]
        if not self._frontier or self._depth == self._max_depth:
            return self._finish()
        if self._width == 1:
            self._mirror.context.append(self._tokens[self._frontier[0]])
        return None

    def restart(self) -> None:
        """A chain is read again with what was drafted; a tree begins anew."""
        if self._width > 1:
            self._begin_again()

    def shrink(self) -> bool:
        """Do with one candidate."""
        had_several = self._width > 1
        if had_several:
            sequence = self._session.sequence
            self._runtime.truncate(sequence, min(sequence.length, len(self._mirror.context) - 1))
            self._width = 1
            self._begin_again()
        return had_several

    def abandon(self) -> None:
        """Keep the rows of tokens, drop those of the tree."""
        sequence = self._session.sequence
        self._runtime.truncate(sequence, sequence.length)

    def _align(self, target: list[int]) -> None:
        """Cut the KV back to what it shares with `target`, short of the last id, whose logits are wanted."""
        mirror, sequence = self._mirror, self._session.sequence
        limit = min(sequence.length, len(target) - 1)
        num_common = min(mirror.num_agreed, limit)
        while num_common < limit and mirror.context[num_common] == target[num_common]:
            num_common += 1
        self._runtime.truncate(sequence, num_common)
        mirror.context, mirror.num_agreed = target, self._session.length

    def _begin_again(self) -> None:
        for nodes in (self._tokens, self._parents, self._logprobs, self._confidences, self._frontier):
            nodes.clear()
        self._pending.clear()
        self._depth = 0

    def _draft(self, parent: int, row: np.ndarray, width: int) -> list[int]:
        """Add the best `width` ids behind node `parent`, whose logits are `row`; the new nodes."""
        sampler = self._mirror.sampler
        position = sampler.position
        try:
            # Noise and penalties are those of this very path.
            for token in (*self._guesses, *self._path(parent)):
                sampler.append(token)
            ranked = sampler.rank(row, width)
        finally:
            sampler.truncate(position)
        first = len(self._tokens)
        before = 1.0 if parent == ROOT else self._confidences[parent]
        for each in ranked:
            self._tokens.append(each.token)
            self._parents.append(parent)
            self._logprobs.append(each.logprob)
            self._confidences.append(before * each.confidence)
        return list(range(first, len(self._tokens)))

    def _goes_on(self, node: int) -> bool:
        is_end = self._tokens[node] in self._mirror.sampler.end_ids
        return not is_end and self._confidences[node] >= self._min_confidence

    def _path(self, node: int) -> list[int]:
        path: list[int] = []
        while node != ROOT:
            path.append(self._tokens[node])
            node = self._parents[node]
        return path[::-1]

    def _finish(self) -> Proposal:
        if self._width > 1:
            self._keep_first_candidate()
        return Proposal(
            tree=DraftTree(tuple(self._tokens), tuple(self._parents)),
            sources=(DraftSource.MODEL,) * len(self._tokens),
            logprobs=tuple(self._logprobs),
            confidences=tuple(self._confidences),
        )

    def _keep_first_candidate(self) -> None:
        path: list[int] = []
        parent = ROOT
        for node in self._pending:
            if self._parents[node] == parent:
                path.append(node)
                parent = node
        self._runtime.keep(self._session.sequence, [self._pending[node] for node in path])
        self._mirror.context.extend(self._tokens[node] for node in path)
