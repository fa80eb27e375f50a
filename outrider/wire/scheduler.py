"""Generation on token ids (scheduler.proto)."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.sampling.acceptance import FinishReason, TokenLogprobs
from outrider.sampling.parameters import SamplingParameters
from outrider.v1 import scheduler_pb2 as pb
from outrider.wire import worker
from outrider.wire.generation import (
    Costs,
    Counters,
    Failure,
    Speculation,
    costs_from_pb,
    costs_to_pb,
    counters_from_pb,
    counters_to_pb,
    failure_from_pb,
    failure_to_pb,
    finish_from_pb,
    finish_to_pb,
    logprobs_from_pb,
    logprobs_to_pb,
    sampling_from_pb,
    sampling_to_pb,
    speculation_from_pb,
    speculation_to_pb,
)
from outrider.wire.state import SchedulerState, state_from_pb, state_to_pb
from outrider.wire.tensors import MalformedMessage, ids_from_tensor, ids_to_tensor


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One generation on token ids; `output_so_far` holds what another scheduler delivered already."""

    prompt: tuple[int, ...]
    sampling: SamplingParameters
    seed: int
    choice: int = 0
    speculation: Speculation = Speculation()
    output_so_far: tuple[int, ...] = ()
    numerics_id: str = ""
    tenant: str = ""
    cache_salt: str = ""
    # Whether the shared store may be written and read for it.
    store: bool = True
    # A free label of the kind of text.
    workload: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """Always the first event."""

    session: bytes
    numerics_id: str
    exactness: worker.Exactness


@dataclass(frozen=True, slots=True)
class Committed:
    """Tokens of one round, never cumulative; logprobs one per token when asked for."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event, unless there was a failure; its counters stand at the length that was kept."""

    finish_reason: FinishReason
    counters: Counters
    numerics_id: str
    changed_replica: bool = False
    draft_status: str = ""
    costs: Costs = Costs()


GenerateEvent = Started | Committed | Finished | Failure


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """Ends a session at `kept_length` output tokens, for a reason of the caller's own."""

    session: bytes
    kept_length: int
    reason: FinishReason


def encode_generate(request: GenerateRequest) -> pb.SchedulerServiceGenerateRequest:
    return pb.SchedulerServiceGenerateRequest(
        prompt=ids_to_tensor(request.prompt),
        output_so_far=ids_to_tensor(request.output_so_far) if request.output_so_far else None,
        numerics_id=request.numerics_id,
        sampling=sampling_to_pb(request.sampling),
        seed=request.seed,
        choice=request.choice,
        speculation=speculation_to_pb(request.speculation),
        tenant=request.tenant,
        cache_salt=request.cache_salt,
        store=None if request.store else False,
        workload=request.workload,
    )


def decode_generate(message: pb.SchedulerServiceGenerateRequest) -> GenerateRequest:
    """Raises `MalformedMessage`. Values are not judged here."""
    return GenerateRequest(
        prompt=ids_from_tensor(message.prompt, "prompt"),
        output_so_far=ids_from_tensor(message.output_so_far, "output_so_far"),
        numerics_id=message.numerics_id,
        sampling=sampling_from_pb(message.sampling),
        seed=message.seed,
        choice=message.choice,
        speculation=speculation_from_pb(message.speculation),
        tenant=message.tenant,
        cache_salt=message.cache_salt,
        store=message.store if message.HasField("store") else True,
        workload=message.workload,
    )


def encode_event(event: GenerateEvent) -> pb.SchedulerServiceGenerateResponse:
    match event:
        case Started():
            return pb.SchedulerServiceGenerateResponse(
                started=pb.Started(
                    session=event.session,
                    numerics_id=event.numerics_id,
                    exactness=worker.exactness_to_pb(event.exactness),
                )
            )
        case Committed():
            return pb.SchedulerServiceGenerateResponse(
                committed=pb.Committed(
                    tokens=ids_to_tensor(event.tokens), logprobs=logprobs_to_pb(event.logprobs)
                )
            )
        case Finished():
            return pb.SchedulerServiceGenerateResponse(finished=_finished_to_pb(event))
        case Failure():
            return pb.SchedulerServiceGenerateResponse(error=failure_to_pb(event))


def decode_event(message: pb.SchedulerServiceGenerateResponse) -> GenerateEvent:
    """Raises `MalformedMessage`."""
    match message.WhichOneof("event"):
        case "started":
            return Started(
                session=message.started.session,
                numerics_id=message.started.numerics_id,
                exactness=worker.exactness_from_pb(message.started.exactness),
            )
        case "committed":
            return Committed(
                tokens=ids_from_tensor(message.committed.tokens, "committed.tokens"),
                logprobs=logprobs_from_pb(message.committed.logprobs, "committed.logprobs"),
            )
        case "finished":
            return _finished_from_pb(message.finished)
        case "error":
            return failure_from_pb(message.error)
        case _:
            raise MalformedMessage("event", "the event is empty or of a later revision")


def encode_finish(request: FinishRequest) -> pb.FinishRequest:
    return pb.FinishRequest(
        session=request.session, kept_length=request.kept_length, reason=finish_to_pb(request.reason)
    )


def decode_finish(message: pb.FinishRequest) -> FinishRequest:
    """Raises `MalformedMessage` without a reason."""
    reason = finish_from_pb(message.reason)
    if reason is None:
        raise MalformedMessage("reason", "is unset or unknown; say why the answer ends")
    return FinishRequest(session=message.session, kept_length=message.kept_length, reason=reason)


def encode_finish_response(finished: Finished) -> pb.FinishResponse:
    return pb.FinishResponse(finished=_finished_to_pb(finished))


def decode_finish_response(message: pb.FinishResponse) -> Finished:
    """Raises `MalformedMessage`."""
    return _finished_from_pb(message.finished)


def describe_request() -> pb.DescribeRequest:
    return pb.DescribeRequest()


def watch_request() -> pb.WatchRequest:
    return pb.WatchRequest()


def encode_describe(state: SchedulerState) -> pb.DescribeResponse:
    return pb.DescribeResponse(state=state_to_pb(state))


def decode_describe(message: pb.DescribeResponse) -> SchedulerState:
    return state_from_pb(message.state)


def encode_watch(state: SchedulerState) -> pb.WatchResponse:
    return pb.WatchResponse(state=state_to_pb(state))


def decode_watch(message: pb.WatchResponse) -> SchedulerState:
    return state_from_pb(message.state)


def purge_request(tenant: str) -> pb.PurgeRequest:
    return pb.PurgeRequest(tenant=tenant)


def decode_purge(message: pb.PurgeRequest) -> str:
    """The tenant to forget."""
    return message.tenant


def encode_purged(num_entries: int) -> pb.PurgeResponse:
    return pb.PurgeResponse(num_entries=num_entries)


def decode_purged(message: pb.PurgeResponse) -> int:
    """How many entries were removed."""
    return message.num_entries


def _finished_to_pb(finished: Finished) -> pb.Finished:
    return pb.Finished(
        finish_reason=finish_to_pb(finished.finish_reason),
        counters=counters_to_pb(finished.counters),
        numerics_id=finished.numerics_id,
        changed_replica=finished.changed_replica,
        draft_status=finished.draft_status,
        costs=costs_to_pb(finished.costs),
    )


def _finished_from_pb(message: pb.Finished) -> Finished:
    reason = finish_from_pb(message.finish_reason)
    if reason is None:
        raise MalformedMessage("finished.finish_reason", "is unset or of a later revision")
    return Finished(
        finish_reason=reason,
        counters=counters_from_pb(message.counters),
        numerics_id=message.numerics_id,
        changed_replica=message.changed_replica,
        draft_status=message.draft_status,
        costs=costs_from_pb(message.costs),
    )
