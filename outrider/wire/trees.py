"""Token trees as two INT32 tensors: ids, and the index of each id's parent (absent for a chain)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.sampling.tree import DraftTree, InvalidTree
from outrider.wire.tensors import MalformedMessage, ids_from_tensor, ids_to_tensor

if TYPE_CHECKING:
    from outrider.v1 import tensor_pb2 as pb


def tree_to_pb(tree: DraftTree) -> tuple[pb.Tensor, pb.Tensor | None]:
    """Encode as (tokens, parents); parents is None for a chain."""
    return ids_to_tensor(tree.tokens), None if tree.is_chain else ids_to_tensor(tree.parents)


def tree_from_pb(tokens: pb.Tensor, parents: pb.Tensor | None, field: str) -> DraftTree:
    """Decode; raises `MalformedMessage` when the two do not form a tree."""
    ids = ids_from_tensor(tokens, f"{field}.tokens")
    if parents is None:
        return DraftTree.chain(ids)
    try:
        return DraftTree(tokens=ids, parents=ids_from_tensor(parents, f"{field}.parents"))
    except InvalidTree as error:
        raise MalformedMessage(f"{field}.parents", str(error)) from error
