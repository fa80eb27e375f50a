"""Commands to a draft worker and its answers (draft.proto)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.sampling.tree import DraftTree
from outrider.v1 import draft_pb2 as pb
from outrider.v1 import worker_pb2 as worker_pb
from outrider.wire import worker
from outrider.wire.generation import (
    DraftSource,
    sampling_from_pb,
    sampling_to_pb,
    source_from_pb,
    source_to_pb,
)
from outrider.wire.tensors import (
    MalformedMessage,
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
    timings: worker.Timings = worker.Timings()
    model_version: str = ""


Command = OpenDraft | Propose | worker.Resume | worker.Close
Event = worker.Opened | Proposal | worker.Stale | worker.SessionError


def encode_request(message: worker.ToWorker[Command]) -> pb.DraftRequest:
    hello = worker.hello_to_pb(message.hello) if message.hello else None
    return pb.DraftRequest(hello=hello, commands=[_command_to_pb(*item) for item in message.commands])


def decode_request(message: pb.DraftRequest) -> worker.ToWorker[Command]:
    """Raises `MalformedMessage`."""
    return worker.ToWorker(
        commands=[_command_from_pb(item) for item in message.commands],
        hello=worker.hello_from_pb(message.hello) if message.HasField("hello") else None,
    )


def encode_response(message: worker.FromWorker[Event]) -> pb.DraftResponse:
    return pb.DraftResponse(
        welcome=worker.welcome_to_pb(message.welcome) if message.welcome else None,
        events=[_event_to_pb(*item) for item in message.events],
        go_away=worker_pb.GoAway(deadline_ms=message.go_away.deadline_ms) if message.go_away else None,
        load=worker.load_to_pb(message.load),
    )


def decode_response(message: pb.DraftResponse) -> worker.FromWorker[Event]:
    """Raises `MalformedMessage`."""
    return worker.FromWorker(
        events=[_event_from_pb(item) for item in message.events],
        welcome=worker.welcome_from_pb(message.welcome) if message.HasField("welcome") else None,
        go_away=worker.GoAway(message.go_away.deadline_ms) if message.HasField("go_away") else None,
        load=worker.load_from_pb(message.load),
    )


def _command_to_pb(header: worker.Header, command: Command) -> pb.DraftCommand:
    message = pb.DraftCommand(header=worker.header_to_pb(header))
    match command:
        case OpenDraft():
            message.open.CopyFrom(_open_to_pb(command))
        case Propose():
            message.propose.CopyFrom(_propose_to_pb(command))
        case worker.Resume():
            message.resume.SetInParent()
        case worker.Close():
            message.close.SetInParent()
    return message


def _command_from_pb(message: pb.DraftCommand) -> worker.Addressed[Command]:
    header = worker.header_from_pb(message.header)
    match message.WhichOneof("command"):
        case "open":
            return worker.Addressed(header, _open_from_pb(message.open))
        case "propose":
            return worker.Addressed(header, _propose_from_pb(message.propose))
        case "resume":
            return worker.Addressed(header, worker.Resume())
        case "close":
            return worker.Addressed(header, worker.Close())
        case _:
            raise MalformedMessage("commands", "a command is empty or of a later revision")


def _event_to_pb(header: worker.Header, event: Event) -> pb.DraftEvent:
    message = pb.DraftEvent(header=worker.header_to_pb(header))
    match event:
        case worker.Opened():
            message.opened.credit = event.credit
        case Proposal():
            message.proposal.CopyFrom(_proposal_to_pb(event))
        case worker.Stale():
            message.stale.SetInParent()
        case worker.SessionError():
            message.error.CopyFrom(worker.error_to_pb(event))
    return message


def _event_from_pb(message: pb.DraftEvent) -> worker.Addressed[Event]:
    header = worker.header_from_pb(message.header)
    match message.WhichOneof("event"):
        case "opened":
            return worker.Addressed(header, worker.Opened(message.opened.credit))
        case "proposal":
            return worker.Addressed(header, _proposal_from_pb(message.proposal))
        case "stale":
            return worker.Addressed(header, worker.Stale())
        case "error":
            return worker.Addressed(header, worker.error_from_pb(message.error))
        case _:
            raise MalformedMessage("events", "an event is empty or of a later revision")


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
    )


def _propose_from_pb(message: pb.Propose) -> Propose:
    return Propose(
        committed=ids_from_tensor(message.committed, "propose.committed"),
        k=message.k,
        w=message.w,
        prefix=ids_from_tensor(message.prefix, "propose.prefix"),
        assumed=ids_from_tensor(message.assumed, "propose.assumed"),
    )


def _proposal_to_pb(proposal: Proposal) -> pb.Proposal:
    tokens, parents = tree_to_pb(proposal.tree)
    return pb.Proposal(
        tokens=tokens,
        parents=parents,
        sources=[source_to_pb(source) for source in proposal.sources],
        logprobs=floats_to_tensor(proposal.logprobs),
        timings=worker.timings_to_pb(proposal.timings),
        model_version=proposal.model_version,
    )


def _proposal_from_pb(message: pb.Proposal) -> Proposal:
    tree = tree_from_pb(message.tokens, message.parents if message.HasField("parents") else None, "proposal")
    return Proposal(
        tree=tree,
        sources=tuple(source_from_pb(value) or DraftSource.MODEL for value in message.sources),
        logprobs=floats_from_tensor(message.logprobs, "proposal.logprobs"),
        timings=worker.timings_from_pb(message.timings),
        model_version=message.model_version,
    )
