"""The token tree that is offered for one round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

ROOT = -1
"""The parent of a node that follows the last committed token."""


class InvalidTree(ValueError):
    """The tokens and parents do not describe a tree."""


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Drafted tokens, each with the index of the node that it follows.

    A parent comes before its children; -1 stands for the last committed token. With
    `tokens=(7, 8, 9, 5)` and `parents=(-1, 0, 0, -1)` the candidates are (7, 8), (7, 9) and (5,).

    Ids are not checked here: a draft that sends an id no vocabulary has costs speed and nothing else
    (`within` drops it). Siblings with equal ids are allowed; the first one counts.

    Raises:
        InvalidTree: when the lengths differ, or a parent does not come before its child.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise InvalidTree(
                f"{len(self.tokens)} tokens but {len(self.parents)} parents; give one per token"
            )
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise InvalidTree(f"node {node} has parent {parent}; it must be from -1 to {node - 1}")

    @classmethod
    def empty(cls) -> DraftTree:
        """The proposal of a round without a draft (k = 0)."""
        return cls((), ())

    @classmethod
    def chain(cls, tokens: Iterable[int]) -> DraftTree:
        """One candidate, each token following the one before."""
        chained = tuple(tokens)
        return cls(chained, tuple(range(-1, len(chained) - 1)))

    @classmethod
    def from_candidates(cls, candidates: Iterable[Sequence[int]]) -> DraftTree:
        """Several candidates; a prefix that candidates share becomes one path of nodes."""
        tokens: list[int] = []
        parents: list[int] = []
        nodes: dict[tuple[int, int], int] = {}
        for candidate in candidates:
            parent = ROOT
            for token in candidate:
                node = nodes.setdefault((parent, token), len(tokens))
                if node == len(tokens):
                    tokens.append(token)
                    parents.append(parent)
                parent = node
        return cls(tuple(tokens), tuple(parents))

    def behind(self, prefix: Sequence[int]) -> DraftTree:
        """A chain with this tree behind its last token."""
        tokens = (*prefix, *self.tokens)
        parents = (*range(-1, len(prefix) - 1), *(parent + len(prefix) for parent in self.parents))
        return DraftTree(tokens, parents)

    @property
    def num_nodes(self) -> int:
        """How many tokens were drafted."""
        return len(self.tokens)

    @property
    def depths(self) -> tuple[int, ...]:
        """The depth of each node; a node that follows the last committed token has depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """The length of the longest candidate; 0 when the tree is empty."""
        return max(self.depths, default=0)

    @property
    def is_chain(self) -> bool:
        """True when there is at most one candidate."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @property
    def leaves(self) -> tuple[int, ...]:
        """The nodes that nothing follows."""
        followed = set(self.parents)
        return tuple(node for node in range(self.num_nodes) if node not in followed)

    def children(self, node: int) -> tuple[int, ...]:
        """The nodes that follow `node` (-1 for the last committed token), ascending."""
        return tuple(child for child in range(node + 1, self.num_nodes) if self.parents[child] == node)

    def child(self, node: int, token: int) -> int | None:
        """The first child of `node` that carries `token`, or None."""
        return next((child for child in self.children(node) if self.tokens[child] == token), None)

    def path_to(self, node: int) -> tuple[int, ...]:
        """The nodes from the first one to `node`, both included; empty for -1."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))

    def candidates(self) -> tuple[tuple[int, ...], ...]:
        """The token sequences from the root to each leaf."""
        return tuple(tuple(self.tokens[node] for node in self.path_to(leaf)) for leaf in self.leaves)

    def limited(self, depth: int) -> DraftTree:
        """The tree cut to `depth` tokens per candidate; empty when that is 0 or less."""
        depths = self.depths
        return self._pruned(lambda node: depths[node] <= depth)

    def within(self, vocab_size: int) -> DraftTree:
        """The tree without ids outside [0, vocab_size) and without what follows them."""
        return self._pruned(lambda node: 0 <= self.tokens[node] < vocab_size)

    def _pruned(self, keep: Callable[[int], bool]) -> DraftTree:
        """The nodes that `keep` accepts and whose ancestors it accepts too, renumbered."""
        renumbered = {ROOT: ROOT}
        tokens: list[int] = []
        parents: list[int] = []
        for node, parent in enumerate(self.parents):
            if parent in renumbered and keep(node):
                renumbered[node] = len(tokens)
                tokens.append(self.tokens[node])
                parents.append(renumbered[parent])
        return self if len(tokens) == self.num_nodes else DraftTree(tuple(tokens), tuple(parents))
