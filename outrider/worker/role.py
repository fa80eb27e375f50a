"""What a draft and a validator each bring to the engine: how to open a session and how to serve one round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from outrider.runtime.runtime import Runtime
    from outrider.runtime.sequence import Segment
    from outrider.telemetry import SpanName
    from outrider.wire.worker import FromWorker, ModelInfo, ToWorker
    from outrider.worker.session import Round, Session


SHORT_TAIL = 64
"""Tokens without KV that are no prompt: what is missing behind a verdict, and a little more."""


def rows_to_take(num_missing: int, room: int, prompt_room: int) -> int:
    """How many of a session's tokens without KV the next forward takes.

    Prompts share `prompt_room` rows, so that they delay nobody by more than one chunk; short tails do not
    count.

    Example: with room 512 and prompt_room 256, 1,000 missing tokens give 256 rows, and 3 give 3.
    """
    return min(num_missing, room if num_missing <= SHORT_TAIL else min(room, prompt_room))


def served_info(runtime: Runtime) -> ModelInfo:
    """The model's info with the context that its KV pool has room for."""
    room = runtime.num_pages * runtime.page_size
    return replace(runtime.info, context_length=min(runtime.info.context_length, room))


class Codec(Protocol):
    """The module of `outrider.wire` that speaks the role's contract."""

    def decode_request(self, message: Any, /) -> ToWorker[Any]: ...

    def encode_response(self, message: FromWorker[Any], /) -> Any: ...


@runtime_checkable
class Job(Protocol):
    """One round under way: rows wanted, logits given, until there is an answer.

    Errors raised by `plan` or `advance` end the job's session and no other.
    """

    def plan(self, room: int, prompt_room: int) -> list[Segment]:
        """Rows for the next forward, at most `room`; [] when that is too few. Changes nothing.

        `rows_to_take` says how many tokens without KV may be among them.
        """
        ...

    def advance(self, logits: Sequence[np.ndarray]) -> Any | None:
        """Take the logits of the planned segments, float32 [num_wanted, width] each; the answer, or None."""
        ...

    def restart(self) -> None:
        """The session's KV was dropped: plan from its tokens again."""
        ...

    def shrink(self) -> bool:
        """Do with fewer rows: the KV pool has no room for these. False when there is nothing to save."""
        ...

    def abandon(self) -> None:
        """The round is not wanted any more: leave the session's KV as another round may find it."""
        ...


class Role(Protocol):
    """Everything that differs between the two workers. Called on the engine's thread only.

    Attributes:
        opening: the command that opens a session (`OpenDraft`, `OpenTarget`).
        span_name: of the span of one round.
        credit: rounds of one session that may be unanswered at one time.
        overtaken: answers a round when the session's next one comes first; None: every round counts.
        info: what is loaded, as the handshake tells it.
    """

    opening: type[Any]
    span_name: SpanName
    credit: int
    overtaken: Any | None
    info: ModelInfo

    def open(self, opening: Any) -> Any:
        """The state of a new session. Raises an `OutriderError` or `InvalidParameter` that refuses it."""
        ...

    def adopt(self, session: Session) -> Any:
        """The state of a session that another model of this role has served so far."""
        ...

    def arrive(self, session: Session, round_: Round) -> bool:
        """Take note of a round that was just received; False when it does not continue the session."""
        ...

    def start(self, session: Session, round_: Round) -> Job | Any:
        """Begin the session's oldest round: a job, an answer that needs none, or `Stale`."""
        ...

    def describe(self, round_: Round, answer: Any) -> dict[str, int]:
        """Attributes of the round's span."""
        ...
