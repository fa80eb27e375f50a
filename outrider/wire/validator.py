"""Commands to a validator and its answers (validator.proto)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.v1 import validator_pb2 as pb
from outrider.wire import worker
from outrider.wire.generation import (
    finish_from_pb,
    finish_to_pb,
    logprobs_from_pb,
    logprobs_to_pb,
    sampling_from_pb,
    sampling_to_pb,
)
from outrider.wire.stream import SHARED_COMMANDS, SHARED_EVENTS, Form, StreamCodec
from outrider.wire.tensors import ids_from_tensor, ids_to_tensor
from outrider.wire.trees import tree_from_pb, tree_to_pb

if TYPE_CHECKING:
    from outrider.sampling.acceptance import FinishReason, TokenLogprobs
    from outrider.sampling.parameters import SamplingParameters
    from outrider.sampling.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Verify:
    """One round: the target runs over the last committed token and this tree."""

    tree: DraftTree


@dataclass(frozen=True, slots=True)
class OpenTarget:
    """Opens a session on a validator: all its tokens, and perhaps the first round."""

    tokens: tuple[int, ...]
    prompt_length: int
    sampling: SamplingParameters
    seed: int
    choice: int = 0
    tenant: str = ""
    cache_salt: str = ""
    numerics_id: str = ""
    first: Verify | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one round committed."""

    committed: tuple[int, ...]
    accepted: int
    raw_accepted: int
    drafted: int
    path: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    timings: worker.Timings = worker.Timings()
    model_version: str = ""
    prefill_only: bool = False
    # Filled by whoever received it.
    transfer: worker.Transfer = worker.Transfer()


Command = OpenTarget | Verify | worker.Resume | worker.Close
Event = worker.Opened | Verdict | worker.Stale | worker.SessionError


def _open_to_pb(command: OpenTarget) -> pb.OpenTarget:
    return pb.OpenTarget(
        tokens=ids_to_tensor(command.tokens),
        prompt_length=command.prompt_length,
        sampling=sampling_to_pb(command.sampling),
        seed=command.seed,
        choice=command.choice,
        tenant=command.tenant,
        cache_salt=command.cache_salt,
        numerics_id=command.numerics_id,
        first=_verify_to_pb(command.first) if command.first else None,
    )


def _open_from_pb(message: pb.OpenTarget) -> OpenTarget:
    return OpenTarget(
        tokens=ids_from_tensor(message.tokens, "open.tokens"),
        prompt_length=message.prompt_length,
        sampling=sampling_from_pb(message.sampling),
        seed=message.seed,
        choice=message.choice,
        tenant=message.tenant,
        cache_salt=message.cache_salt,
        numerics_id=message.numerics_id,
        first=_verify_from_pb(message.first) if message.HasField("first") else None,
    )


def _verify_to_pb(command: Verify) -> pb.Verify:
    tokens, parents = tree_to_pb(command.tree)
    return pb.Verify(tokens=tokens, parents=parents)


def _verify_from_pb(message: pb.Verify) -> Verify:
    return Verify(
        tree_from_pb(message.tokens, message.parents if message.HasField("parents") else None, "verify")
    )


def _verdict_to_pb(verdict: Verdict) -> pb.Verdict:
    return pb.Verdict(
        committed=ids_to_tensor(verdict.committed),
        accepted=verdict.accepted,
        raw_accepted=verdict.raw_accepted,
        drafted=verdict.drafted,
        path=ids_to_tensor(verdict.path),
        logprobs=logprobs_to_pb(verdict.logprobs),
        finish_reason=finish_to_pb(verdict.finish_reason),
        timings=worker.timings_to_pb(verdict.timings),
        model_version=verdict.model_version,
        prefill_only=verdict.prefill_only,
    )


def _verdict_from_pb(message: pb.Verdict) -> Verdict:
    return Verdict(
        committed=ids_from_tensor(message.committed, "verdict.committed"),
        accepted=message.accepted,
        raw_accepted=message.raw_accepted,
        drafted=message.drafted,
        path=ids_from_tensor(message.path, "verdict.path"),
        logprobs=logprobs_from_pb(message.logprobs, "verdict.logprobs"),
        finish_reason=finish_from_pb(message.finish_reason),
        timings=worker.timings_from_pb(message.timings),
        model_version=message.model_version,
        prefill_only=message.prefill_only,
    )


_CODEC: StreamCodec[Command, Event] = StreamCodec(
    request=pb.VerifyRequest,
    response=pb.VerifyResponse,
    command=pb.ValidatorCommand,
    event=pb.ValidatorEvent,
    commands=(
        Form("open", OpenTarget, _open_to_pb, _open_from_pb),
        Form("verify", Verify, _verify_to_pb, _verify_from_pb),
        *SHARED_COMMANDS,
    ),
    events=(Form("verdict", Verdict, _verdict_to_pb, _verdict_from_pb), *SHARED_EVENTS),
)
encode_request = _CODEC.encode_request
decode_request = _CODEC.decode_request
encode_response = _CODEC.encode_response
decode_response = _CODEC.decode_response
