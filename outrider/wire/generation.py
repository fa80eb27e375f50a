"""What a generation is asked for and how it is counted (generation.proto)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from outrider.sampling.acceptance import FinishReason, TokenLogprobs
from outrider.sampling.parameters import SamplingParameters
from outrider.v1 import generation_pb2 as pb
from outrider.wire.tensors import (
    floats_from_tensor,
    floats_to_tensor,
    ids_from_tensor,
    ids_to_tensor,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class DraftSource(enum.Enum):
    """Where a drafted token came from; the values are the wire's."""

    NONE = 1
    NGRAM = 2
    MODEL = 3
    PATTERN_CACHE = 4
    CANDIDATE_CACHE = 5
    PREDICTION = 6
    GRAMMAR = 7


@dataclass(frozen=True, slots=True)
class Speculation:
    """How much to speculate; None leaves the choice to the scheduler."""

    k: int | None = None
    w: int | None = None
    source: DraftSource | None = None
    # The product of the draft's confidence at which a candidate ends; 0: never.
    min_confidence: float | None = None
    # Bounds of what is chosen per round while k is None; no drafts at all are always a choice.
    min_k: int | None = None
    max_k: int | None = None
    # Wished time per output token behind the first, and from receipt to the last of max_tokens.
    tpot_target_ms: int | None = None
    finish_target_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """One terminal error of a session or a generation."""

    reason: str
    message: str
    retryable: bool = False
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SourceCounters:
    """Tokens of one draft source; a proposal may join several."""

    source: DraftSource
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one session, as generation.proto defines them."""

    rounds: int = 0
    committed: int = 0
    drafted: int = 0
    accepted: int = 0
    raw_accepted: int = 0
    discarded_rounds: int = 0
    missed_proposals: int = 0
    reopens: int = 0
    # Index i: rounds with a token of depth i + 1, put to the target and committed.
    drafted_by_position: tuple[int, ...] = ()
    accepted_by_position: tuple[int, ...] = ()
    # One per source that drafted; their sums are `drafted` and `accepted`.
    by_source: tuple[SourceCounters, ...] = ()

    @property
    def tau(self) -> float:
        """Mean acceptance length: committed tokens per round; 1.0 without a round."""
        return self.committed / self.rounds if self.rounds else 1.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens; 0.0 when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """What one session took, in microseconds and bytes; field by field as in generation.proto."""

    queue_us: int = 0
    prefill_us: int = 0
    draft_us: int = 0
    verify_us: int = 0
    draft_queue_us: int = 0
    draft_compute_us: int = 0
    validator_queue_us: int = 0
    validator_compute_us: int = 0
    draft_sent_bytes: int = 0
    draft_received_bytes: int = 0
    validator_sent_bytes: int = 0
    validator_received_bytes: int = 0
    encode_us: int = 0
    decode_us: int = 0
    hops: int = 0


_COSTS = tuple(field.name for field in fields(Costs))
_OPTIONAL = tuple(field.name for field in fields(Speculation) if field.name != "source")


def sampling_to_pb(parameters: SamplingParameters) -> pb.Sampling:
    return pb.Sampling(
        min_tokens=parameters.min_tokens,
        max_tokens=parameters.max_tokens,
        logit_bias=dict(parameters.logit_bias),
        repetition_penalty=parameters.repetition_penalty,
        presence_penalty=parameters.presence_penalty,
        frequency_penalty=parameters.frequency_penalty,
        temperature=parameters.temperature,
        top_k=parameters.top_k,
        top_p=parameters.top_p,
        min_p=parameters.min_p,
        stop_ids=parameters.stop_ids,
        ignore_eos=parameters.ignore_eos,
        logprobs=parameters.logprobs,
    )


def sampling_from_pb(message: pb.Sampling) -> SamplingParameters:
    """Decode; unset fields take the defaults of `SamplingParameters`. Values are not judged here."""
    optional = {
        name: getattr(message, name)
        for name in ("max_tokens", "repetition_penalty", "temperature", "top_p", "logprobs")
        if message.HasField(name)
    }
    return SamplingParameters(
        min_tokens=message.min_tokens,
        logit_bias=tuple(sorted(message.logit_bias.items())),
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        top_k=message.top_k,
        min_p=message.min_p,
        stop_ids=tuple(message.stop_ids),
        ignore_eos=message.ignore_eos,
        **optional,
    )


def speculation_to_pb(speculation: Speculation) -> pb.Speculation:
    return pb.Speculation(
        k=speculation.k,
        w=speculation.w,
        source=source_to_pb(speculation.source),
        min_confidence=speculation.min_confidence,
        min_k=speculation.min_k,
        max_k=speculation.max_k,
        tpot_target_ms=speculation.tpot_target_ms,
        finish_target_ms=speculation.finish_target_ms,
    )


def speculation_from_pb(message: pb.Speculation) -> Speculation:
    optional = {name: getattr(message, name) for name in _OPTIONAL if message.HasField(name)}
    return Speculation(source=source_from_pb(message.source), **optional)


def source_to_pb(source: DraftSource | None) -> str:
    """The name of the enum's value; protobuf takes names and numbers alike."""
    return f"DRAFT_SOURCE_{'UNSPECIFIED' if source is None else source.name}"


def source_from_pb(value: int) -> DraftSource | None:
    """A source that this revision does not know reads as unset."""
    try:
        return DraftSource(value)
    except ValueError:
        return None


def finish_to_pb(reason: FinishReason | None) -> str:
    """The name of the enum's value; protobuf takes names and numbers alike."""
    return f"FINISH_REASON_{'UNSPECIFIED' if reason is None else reason.name}"


def finish_from_pb(value: int) -> FinishReason | None:
    """A reason that this revision does not know reads as unset."""
    name = pb.FinishReason.Name(value) if value in pb.FinishReason.values() else ""
    return FinishReason.__members__.get(name.removeprefix("FINISH_REASON_"))


def logprobs_to_pb(entries: Iterable[TokenLogprobs]) -> list[pb.TokenLogprobs]:
    return [
        pb.TokenLogprobs(
            logprob=entry.logprob,
            top_ids=ids_to_tensor(entry.top_ids),
            top_logprobs=floats_to_tensor(entry.top_logprobs),
        )
        for entry in entries
    ]


def logprobs_from_pb(messages: Sequence[pb.TokenLogprobs], field: str) -> tuple[TokenLogprobs, ...]:
    return tuple(
        TokenLogprobs(
            logprob=message.logprob,
            top_ids=ids_from_tensor(message.top_ids, f"{field}.top_ids"),
            top_logprobs=floats_from_tensor(message.top_logprobs, f"{field}.top_logprobs"),
        )
        for message in messages
    )


def counters_to_pb(counters: Counters) -> pb.Counters:
    return pb.Counters(
        rounds=counters.rounds,
        committed=counters.committed,
        drafted=counters.drafted,
        accepted=counters.accepted,
        raw_accepted=counters.raw_accepted,
        discarded_rounds=counters.discarded_rounds,
        missed_proposals=counters.missed_proposals,
        reopens=counters.reopens,
        drafted_by_position=counters.drafted_by_position,
        accepted_by_position=counters.accepted_by_position,
        by_source=[
            pb.SourceCounters(source=source_to_pb(each.source), drafted=each.drafted, accepted=each.accepted)
            for each in counters.by_source
        ],
    )


def counters_from_pb(message: pb.Counters) -> Counters:
    return Counters(
        rounds=message.rounds,
        committed=message.committed,
        drafted=message.drafted,
        accepted=message.accepted,
        raw_accepted=message.raw_accepted,
        discarded_rounds=message.discarded_rounds,
        missed_proposals=message.missed_proposals,
        reopens=message.reopens,
        drafted_by_position=tuple(message.drafted_by_position),
        accepted_by_position=tuple(message.accepted_by_position),
        by_source=tuple(
            SourceCounters(source, each.drafted, each.accepted)
            for each in message.by_source
            if (source := source_from_pb(each.source)) is not None
        ),
    )


def costs_to_pb(costs: Costs) -> pb.Costs:
    return pb.Costs(**{name: getattr(costs, name) for name in _COSTS})


def costs_from_pb(message: pb.Costs) -> Costs:
    return Costs(**{name: getattr(message, name) for name in _COSTS})


def failure_to_pb(failure: Failure) -> pb.GenerationError:
    return pb.GenerationError(
        reason=failure.reason,
        message=failure.message,
        retryable=failure.retryable,
        retry_after_ms=failure.retry_after_ms,
    )


def failure_from_pb(message: pb.GenerationError) -> Failure:
    return Failure(
        reason=message.reason,
        message=message.message,
        retryable=message.retryable,
        retry_after_ms=message.retry_after_ms if message.HasField("retry_after_ms") else None,
    )
