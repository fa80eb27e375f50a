"""Generation on text, between a client and the gateway (inference.proto)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.sampling.parameters import SamplingParameters
from outrider.v1 import inference_pb2 as pb
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
from outrider.wire.tensors import MalformedMessage, ids_from_tensor, ids_to_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.sampling.acceptance import FinishReason, TokenLogprobs

MAX_STOPS = 16


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn; roles are those that the model's template knows."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Chat:
    """Input that goes through the model's own template."""

    messages: tuple[ChatMessage, ...]


@dataclass(frozen=True, slots=True)
class PromptIds:
    """Input that is token ids already."""

    ids: tuple[int, ...]


Prompt = str | Chat | PromptIds
"""What a model goes on from; a plain string is used as it stands, without a template."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One generation on text. `prompt` is None only when it came so over the wire: a fault of the caller."""

    prompt: Prompt | None
    model: str = ""
    sampling: SamplingParameters = SamplingParameters()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    speculation: Speculation = Speculation()
    choice: int = 0
    token_by_token: bool = False
    """One delta per token in place of one per round."""
    cache_salt: str = ""
    """What is kept of the prompt is shared with requests of the same salt only."""
    store: bool = True
    """Whether the shared store may be written and read for it."""
    workload: str = ""
    """A free label of the kind of text; empty: guessed from the prompt."""


@dataclass(frozen=True, slots=True)
class Delta:
    """New text and the committed ids of one event; never cumulative. Text may lag behind the ids."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Final:
    """The end of an answer, and how it came about."""

    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    seed: int
    counters: Counters
    numerics_id: str
    exactness: worker.Exactness
    stop: str = ""
    changed_replica: bool = False
    draft_status: str = ""
    trace_id: str = ""
    costs: Costs = Costs()


GenerateEvent = Delta | Final | Failure


def encode_generate(request: GenerateRequest) -> pb.GenerateRequest:
    """Encode; raises ValueError for a number that its field can not hold."""
    message = pb.GenerateRequest(
        model=request.model,
        sampling=sampling_to_pb(request.sampling),
        seed=request.seed,
        stop=request.stop,
        speculation=speculation_to_pb(request.speculation),
        choice=request.choice,
        token_by_token=request.token_by_token,
        cache_salt=request.cache_salt,
        store=None if request.store else False,
        workload=request.workload,
    )
    match request.prompt:
        case str(text):
            message.prompt = text
        case Chat(messages):
            turns = [pb.ChatMessage(role=turn.role, content=turn.content) for turn in messages]
            message.chat.CopyFrom(pb.Chat(messages=turns))
        case PromptIds(ids):
            message.prompt_ids.CopyFrom(ids_to_tensor(ids))
        case None:
            pass
    return message


def decode_generate(message: pb.GenerateRequest) -> GenerateRequest:
    """Raises `MalformedMessage`. Values are not judged here."""
    return GenerateRequest(
        prompt=_prompt_from_pb(message),
        model=message.model,
        sampling=sampling_from_pb(message.sampling),
        seed=message.seed if message.HasField("seed") else None,
        stop=tuple(message.stop),
        speculation=speculation_from_pb(message.speculation),
        choice=message.choice,
        token_by_token=message.token_by_token,
        cache_salt=message.cache_salt,
        store=message.store if message.HasField("store") else True,
        workload=message.workload,
    )


def encode_event(event: GenerateEvent) -> pb.GenerateResponse:
    match event:
        case Delta():
            return pb.GenerateResponse(
                delta=pb.Delta(
                    text=event.text,
                    token_ids=ids_to_tensor(event.token_ids),
                    logprobs=logprobs_to_pb(event.logprobs),
                )
            )
        case Final():
            return pb.GenerateResponse(final=_final_to_pb(event))
        case Failure():
            return pb.GenerateResponse(error=failure_to_pb(event))


def decode_event(message: pb.GenerateResponse) -> GenerateEvent:
    """Raises `MalformedMessage`."""
    match message.WhichOneof("event"):
        case "delta":
            return Delta(
                text=message.delta.text,
                token_ids=ids_from_tensor(message.delta.token_ids, "delta.token_ids"),
                logprobs=logprobs_from_pb(message.delta.logprobs, "delta.logprobs"),
            )
        case "final":
            return _final_from_pb(message.final)
        case "error":
            return failure_from_pb(message.error)
        case _:
            raise MalformedMessage("event", "the event is empty or of a later revision")


def list_models_request() -> pb.ListModelsRequest:
    return pb.ListModelsRequest()


def encode_models(models: Iterable[worker.ModelInfo]) -> pb.ListModelsResponse:
    return pb.ListModelsResponse(models=[worker.info_to_pb(info) for info in models])


def decode_models(message: pb.ListModelsResponse) -> tuple[worker.ModelInfo, ...]:
    return tuple(worker.info_from_pb(info) for info in message.models)


def purge_request() -> pb.InferenceServicePurgeRequest:
    return pb.InferenceServicePurgeRequest()


def encode_purged(num_entries: int) -> pb.InferenceServicePurgeResponse:
    return pb.InferenceServicePurgeResponse(num_entries=num_entries)


def decode_purged(message: pb.InferenceServicePurgeResponse) -> int:
    """How many entries were removed."""
    return message.num_entries


def _prompt_from_pb(message: pb.GenerateRequest) -> Prompt | None:
    match message.WhichOneof("input"):
        case "prompt":
            return message.prompt
        case "chat":
            return Chat(tuple(ChatMessage(turn.role, turn.content) for turn in message.chat.messages))
        case "prompt_ids":
            return PromptIds(ids_from_tensor(message.prompt_ids, "prompt_ids"))
        case _:
            return None


def _final_to_pb(final: Final) -> pb.Final:
    return pb.Final(
        finish_reason=finish_to_pb(final.finish_reason),
        stop=final.stop,
        usage=pb.Usage(prompt_tokens=final.prompt_tokens, completion_tokens=final.completion_tokens),
        seed=final.seed,
        counters=counters_to_pb(final.counters),
        numerics_id=final.numerics_id,
        exactness=worker.exactness_to_pb(final.exactness),
        changed_replica=final.changed_replica,
        draft_status=final.draft_status,
        trace_id=final.trace_id,
        costs=costs_to_pb(final.costs),
    )


def _final_from_pb(message: pb.Final) -> Final:
    reason = finish_from_pb(message.finish_reason)
    if reason is None:
        raise MalformedMessage("final.finish_reason", "is unset or of a later revision")
    return Final(
        finish_reason=reason,
        prompt_tokens=message.usage.prompt_tokens,
        completion_tokens=message.usage.completion_tokens,
        seed=message.seed,
        counters=counters_from_pb(message.counters),
        numerics_id=message.numerics_id,
        exactness=worker.exactness_from_pb(message.exactness),
        stop=message.stop,
        changed_replica=message.changed_replica,
        draft_status=message.draft_status,
        trace_id=message.trace_id,
        costs=costs_from_pb(message.costs),
    )
