"""Whether a request can be taken: one clear error that names the field, or the plan of the session."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.rpc.errors import ContextExceeded, InvalidArgument
from outrider.sampling.parameters import InvalidParameter
from outrider.wire.generation import DraftSource, Speculation
from outrider.wire.scheduler import GenerateRequest
from outrider.wire.worker import ModelInfo
from services.scheduler.settings import SchedulerSettings
from services.scheduler.sources import SOURCES

USUAL_CONFIDENCE = 0.5
"""At which a candidate of no stated k ends, unless a policy knows better."""
MAX_WIDTH = 8
"""Candidates per proposal: past a few, another one is hardly ever the right one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much a session speculates; never changes its output."""

    # Most tokens per candidate; where the plan adapts, what there are costs for at most.
    k: int
    w: int
    # None: the best of all for each round.
    source: DraftSource | None
    # A session that has reached this length goes on without drafts.
    until: int | None = None
    # The product of confidence at which a candidate ends before k; 0: never.
    min_confidence: float = 0.0
    # The policy chooses a k for each round, from `min_k` to `k`, or 0.
    adapts: bool = False
    min_k: int = 1


def check_shape(request: GenerateRequest) -> None:
    """What can be said without knowing the model. Raises InvalidArgument."""
    if not request.prompt:
        raise InvalidArgument("prompt is empty; send at least one token id", field="prompt")
    try:
        request.sampling.validate()
    except InvalidParameter as error:
        raise InvalidArgument(error.message, field=f"sampling.{error.field}") from error
    if request.output_so_far and not request.numerics_id:
        raise InvalidArgument(
            "numerics_id is empty; with output_so_far, send the one that it was made with",
            field="numerics_id",
        )
    if len(request.output_so_far) >= request.sampling.max_tokens:
        raise InvalidArgument(
            f"output_so_far has {len(request.output_so_far)} tokens, max_tokens is "
            f"{request.sampling.max_tokens}; nothing is left to generate",
            field="output_so_far",
        )


def check_against_model(request: GenerateRequest, info: ModelInfo) -> None:
    """Ids and lengths. Raises InvalidArgument, ContextExceeded."""
    for field, ids in (("prompt", request.prompt), ("output_so_far", request.output_so_far)):
        for index, token in enumerate(ids):
            if not 0 <= token < info.vocab_size:
                raise InvalidArgument(
                    f"{field}[{index}] is {token}; ids of {info.model} go from 0 to {info.vocab_size - 1}",
                    field=field,
                )
    length = len(request.prompt) + len(request.output_so_far)
    if length >= info.context_length:
        what = "prompt and output_so_far have" if request.output_so_far else "prompt has"
        raise ContextExceeded(
            f"{what} {length} tokens, and the context of {info.model} ends at {info.context_length}, one of "
            f"them for output; shorten the prompt to {info.context_length - 1} tokens or fewer",
            field="prompt",
        )
    try:
        request.sampling.validate_ids(info.vocab_size)
    except InvalidParameter as error:
        raise InvalidArgument(error.message, field=f"sampling.{error.field}") from error


def plan_of(speculation: Speculation, settings: SchedulerSettings) -> Plan:
    """The request's wishes within the limits; the settings' where it has none. Raises InvalidArgument."""
    _check_limits(speculation, settings)
    w = 1 if speculation.w is None else speculation.w
    if not 1 <= w <= MAX_WIDTH:
        raise InvalidArgument(f"speculation.w is {w}; give 1 to {MAX_WIDTH}", field="speculation.w")
    source = speculation.source or settings.source
    if source is not None and source is not DraftSource.NONE and source not in SOURCES:
        offered = ", ".join(kind.name.lower() for kind in (DraftSource.NONE, *SOURCES))
        raise InvalidArgument(
            f"speculation.source {source.name.lower()} is not offered here; choose one of {offered}",
            field="speculation.source",
        )
    confidence = _threshold(speculation)
    if source is DraftSource.NONE:
        return Plan(k=0, w=1, source=DraftSource.NONE)
    # Who asks for a shape has it in every round.
    shaped = speculation.k is not None or w > 1 or speculation.min_confidence is not None
    adapts = settings.policy != "fixed" and not shaped
    k = next(each for each in (speculation.k, speculation.max_k, settings.max_k) if each is not None)
    return Plan(
        k=k,
        w=w,
        source=source,
        until=settings.draft_until,
        min_confidence=confidence,
        adapts=adapts,
        min_k=max(1, speculation.min_k or 1),
    )


def _check_limits(speculation: Speculation, settings: SchedulerSettings) -> None:
    bounds = {"k": speculation.k, "min_k": speculation.min_k, "max_k": speculation.max_k}
    for name, value in bounds.items():
        if value is not None and value > settings.max_k:
            raise InvalidArgument(
                f"speculation.{name} is {value}, the limit is {settings.max_k} (--max-k of the scheduler)",
                field=f"speculation.{name}",
            )
        if value is not None and name != "k" and speculation.k is not None:
            raise InvalidArgument(
                f"speculation.{name} bounds a k that is chosen for each round; leave it out, or leave k out",
                field=f"speculation.{name}",
            )
    least, most = speculation.min_k, speculation.max_k
    if least is not None and most is not None and least > most:
        raise InvalidArgument(
            f"speculation.min_k is {least}, above max_k, {most}; swap them",
            field="speculation.min_k",
        )
    for name in ("tpot_target_ms", "finish_target_ms"):
        if getattr(speculation, name) == 0:
            raise InvalidArgument(
                f"speculation.{name} is 0; give milliseconds above 0, or leave it out",
                field=f"speculation.{name}",
            )


def _threshold(speculation: Speculation) -> float:
    """A k that was asked for is what is drafted, unless the request says otherwise."""
    if speculation.min_confidence is None:
        return USUAL_CONFIDENCE if speculation.k is None else 0.0
    if not 0 <= speculation.min_confidence <= 1:
        raise InvalidArgument(
            f"speculation.min_confidence is {speculation.min_confidence:g}; give 0 (off) to 1",
            field="speculation.min_confidence",
        )
    return speculation.min_confidence


def depth_of_round(plan: Plan, info: ModelInfo, *, length: int, num_output: int, max_tokens: int) -> int:
    """The k of one round: what the end of context and answer leave room for, beside the target's own token.

    Example: k 4, context 100, length 97, far from max_tokens: 2, at positions 97 and 98 (99 is the bonus).
    """
    if plan.until is not None and length >= plan.until:
        return 0
    room = min(info.context_length - length - 1, max_tokens - num_output - 1)
    return max(0, min(plan.k, info.max_depth, info.max_nodes // plan.w, room))
