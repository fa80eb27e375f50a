"""Commands to a draft worker and its answers (draft.proto)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.sampling.tree import DraftTree
from outrider.v1 import draft_pb2 as pb
from outrider.wire import worker
from outrider.wire.generation import (
    DraftSource,
    sampling_from_pb,
    sampling_to_pb,
    source_from_pb,
    source_to_pb,
)
from outrider.wire.stream import SHARED_COMMANDS, SHARED_EVENTS, Form, StreamCodec
from outrider.wire.tensors import (
    floats_from_tensor,
    floats_to_tensor,
    ids_from_tensor,
    ids_to_tensor,
)
from outrider.wire.trees import tree_from_pb, tree_to_pb

if TYPE_CHECKING:
    from outrider.sampling.parameters import SamplingParameters


@dataclass(frozen=True, slots=True)
class Propose:
    """Asks for one proposal; `committed` holds the ids since the last Open or Propose."""

    committed: tuple[int, ...]
    k: int
    w: int = 1
    prefix: tuple[int, ...] = ()
    assumed: tuple[int, ...] = ()
    # The product of confidence below which a candidate ends; 0: off.
    min_confidence: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenDraft:
    """Opens a session on a draft worker: all its tokens, and perhaps the first round."""

    tokens: tuple[int, ...]
    prompt_length: int
    sampling: SamplingParameters
    seed: int
    choice: int = 0
    end_ids: tuple[int, ...] = ()
    tenant: str = ""
    cache_salt: str = ""
    first: Propose | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A token tree with hints: source and log-probability per node."""

    tree: DraftTree
    sources: tuple[DraftSource, ...] = ()
    logprobs: tuple[float, ...] = ()
    # Of each node and all before it on its path; empty: the draft does not say.
    confidences: tuple[float, ...] = ()
    timings: worker.Timings = worker.Timings()
    model_version: str = ""
    # Filled by whoever received it.
    transfer: worker.Transfer = worker.Transfer()


Command = OpenDraft | Propose | worker.Resume | worker.Close
Event = worker.Opened | Proposal | worker.Stale | worker.SessionError


def _open_to_pb(command: OpenDraft) -> pb.OpenDraft:
    return pb.OpenDraft(
        tokens=ids_to_tensor(command.tokens),
        prompt_length=command.prompt_length,
        sampling=sampling_to_pb(command.sampling),
        seed=command.seed,
        choice=command.choice,
        end_ids=command.end_ids,
        tenant=command.tenant,
        cache_salt=command.cache_salt,
        first=_propose_to_pb(command.first) if command.first else None,
    )


def _open_from_pb(message: pb.OpenDraft) -> OpenDraft:
    return OpenDraft(
        tokens=ids_from_tensor(message.tokens, "open.tokens"),
        prompt_length=message.prompt_length,
        sampling=sampling_from_pb(message.sampling),
        seed=message.seed,
        choice=message.choice,
        end_ids=tuple(message.end_ids),
        tenant=message.tenant,
        cache_salt=message.cache_salt,
        first=_propose_from_pb(message.first) if message.HasField("first") else None,
    )


def _propose_to_pb(command: Propose) -> pb.Propose:
    return pb.Propose(
        committed=ids_to_tensor(command.committed),
        k=command.k,
        w=command.w,
        prefix=ids_to_tensor(command.prefix) if command.prefix else None,
        assumed=ids_to_tensor(command.assumed) if command.assumed else None,
        min_confidence=command.min_confidence,
    )


def _propose_from_pb(message: pb.Propose) -> Propose:
    return Propose(
        committed=ids_from_tensor(message.committed, "propose.committed"),
        k=message.k,
        w=message.w,
        prefix=ids_from_tensor(message.prefix, "propose.prefix"),
        assumed=ids_from_tensor(message.assumed, "propose.assumed"),
        min_confidence=message.min_confidence,
    )


def _proposal_to_pb(proposal: Proposal) -> pb.Proposal:
    tokens, parents = tree_to_pb(proposal.tree)
    return pb.Proposal(
        tokens=tokens,
        parents=parents,
        sources=[source_to_pb(source) for source in proposal.sources],
        logprobs=floats_to_tensor(proposal.logprobs),
        confidences=floats_to_tensor(proposal.confidences) if proposal.confidences else None,
        timings=worker.timings_to_pb(proposal.timings),
        model_version=proposal.model_version,
    )


def _proposal_from_pb(message: pb.Proposal) -> Proposal:
    tree = tree_from_pb(message.tokens, message.parents if message.HasField("parents") else None, "proposal")
    return Proposal(
        tree=tree,
        sources=tuple(source_from_pb(value) or DraftSource.MODEL for value in message.sources),
        logprobs=floats_from_tensor(message.logprobs, "proposal.logprobs"),
        confidences=(
            floats_from_tensor(message.confidences, "proposal.confidences")
            if message.HasField("confidences")
            else ()
        ),
        timings=worker.timings_from_pb(message.timings),
        model_version=message.model_version,
    )


_CODEC: StreamCodec[Command, Event] = StreamCodec(
    request=pb.DraftRequest,
    response=pb.DraftResponse,
    command=pb.DraftCommand,
    event=pb.DraftEvent,
    commands=(
        Form("open", OpenDraft, _open_to_pb, _open_from_pb),
        Form("propose", Propose, _propose_to_pb, _propose_from_pb),
        *SHARED_COMMANDS,
    ),
    events=(Form("proposal", Proposal, _proposal_to_pb, _proposal_from_pb), *SHARED_EVENTS),
)
encode_request = _CODEC.encode_request
decode_request = _CODEC.decode_request
encode_response = _CODEC.encode_response
decode_response = _CODEC.decode_response
