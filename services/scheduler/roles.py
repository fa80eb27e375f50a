"""What differs between the streams of drafts and validators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from outrider.v1 import draft_pb2_grpc, validator_pb2_grpc
from outrider.wire import draft, validator
from outrider.wire.draft import OpenDraft, Proposal
from outrider.wire.validator import OpenTarget, Verdict

if TYPE_CHECKING:
    import grpc

    from outrider.wire.stream import Note
    from outrider.wire.worker import FromWorker, ToWorker

A = TypeVar("A")  # the answer to a round


@dataclass(frozen=True, slots=True)
class Role(Generic[A]):
    """One kind of worker, as a link talks to it."""

    name: str
    # The stub's streaming method for a channel.
    method: Callable[[grpc.aio.Channel], Callable[[], Any]]
    encode: Callable[[ToWorker[Any], Note | None], Any]
    decode: Callable[[Any, Note | None], FromWorker[Any]]
    # Commands that open a session, and the event that answers a round.
    opening: type[Any]
    answer: type[A]


VALIDATOR: Role[Verdict] = Role(
    name="validator",
    method=lambda channel: validator_pb2_grpc.ValidatorServiceStub(channel).Verify,
    encode=validator.encode_request,
    decode=validator.decode_response,
    opening=OpenTarget,
    answer=Verdict,
)
DRAFT: Role[Proposal] = Role(
    name="draft",
    method=lambda channel: draft_pb2_grpc.DraftServiceStub(channel).Draft,
    encode=draft.encode_request,
    decode=draft.decode_response,
    opening=OpenDraft,
    answer=Proposal,
)
