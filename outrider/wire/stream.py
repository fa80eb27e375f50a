"""Messages of a worker's stream: lists of events under headers, in the same form for both roles."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from outrider.v1 import worker_pb2 as pb
from outrider.wire import worker
from outrider.wire.tensors import MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

C = TypeVar("C")
E = TypeVar("E")

Note = Callable[[worker.Header, int, int], None]
"""Told of each event of a message: its header, its serialized bytes, and the nanoseconds that it took."""


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of command or event: its field in the oneof, its value, and the way between the two."""

    field: str
    value: type[Any]
    encode: Callable[[Any], Any]
    # Raises `MalformedMessage`.
    decode: Callable[[Any], Any]


SHARED_COMMANDS = (
    Form("resume", worker.Resume, lambda _: pb.Resume(), lambda _: worker.Resume()),
    Form("close", worker.Close, lambda _: pb.Close(), lambda _: worker.Close()),
)
SHARED_EVENTS = (
    Form(
        "opened",
        worker.Opened,
        lambda opened: pb.Opened(credit=opened.credit),
        lambda message: worker.Opened(message.credit),
    ),
    Form("stale", worker.Stale, lambda _: pb.Stale(), lambda _: worker.Stale()),
    Form("error", worker.SessionError, worker.error_to_pb, worker.error_from_pb),
)


@dataclass(frozen=True, slots=True)
class StreamCodec(Generic[C, E]):
    """Encodes and decodes the stream of one role; C and E are the unions of its commands and events."""

    request: type[Any]
    response: type[Any]
    command: type[Any]
    event: type[Any]
    commands: Sequence[Form]
    events: Sequence[Form]

    def encode_request(self, message: worker.ToWorker[C], note: Note | None = None) -> Any:
        """From the scheduler."""
        return self.request(
            hello=worker.hello_to_pb(message.hello) if message.hello else None,
            commands=[_encode(self.command, self.commands, item, note) for item in message.commands],
        )

    def decode_request(self, message: Any) -> worker.ToWorker[C]:
        """At the worker. Raises `MalformedMessage`."""
        return worker.ToWorker(
            commands=[_decode("command", self.commands, item) for item in message.commands],
            hello=worker.hello_from_pb(message.hello) if message.HasField("hello") else None,
        )

    def encode_response(self, message: worker.FromWorker[E]) -> Any:
        """From the worker."""
        go_away = message.go_away
        return self.response(
            welcome=worker.welcome_to_pb(message.welcome) if message.welcome else None,
            events=[_encode(self.event, self.events, item) for item in message.events],
            go_away=pb.GoAway(deadline_ms=go_away.deadline_ms) if go_away else None,
            load=worker.load_to_pb(message.load),
        )

    def decode_response(self, message: Any, note: Note | None = None) -> worker.FromWorker[E]:
        """At the scheduler. Raises `MalformedMessage`."""
        return worker.FromWorker(
            events=[_decode("event", self.events, item, note) for item in message.events],
            welcome=worker.welcome_from_pb(message.welcome) if message.HasField("welcome") else None,
            go_away=worker.GoAway(message.go_away.deadline_ms) if message.HasField("go_away") else None,
            load=worker.load_from_pb(message.load),
        )


def _encode(
    kind: type[Any], forms: Sequence[Form], item: worker.Addressed[Any], note: Note | None = None
) -> Any:
    started_ns = time.monotonic_ns()
    form = next(form for form in forms if isinstance(item.event, form.value))
    message = kind(header=worker.header_to_pb(item.header), **{form.field: form.encode(item.event)})
    if note is not None:
        num_bytes = message.ByteSize()
        note(item.header, num_bytes, time.monotonic_ns() - started_ns)
    return message


def _decode(
    oneof: str, forms: Sequence[Form], message: Any, note: Note | None = None
) -> worker.Addressed[Any]:
    started_ns = time.monotonic_ns()
    field = message.WhichOneof(oneof)
    form = next((form for form in forms if form.field == field), None)
    if form is None:
        raise MalformedMessage(f"{oneof}s", f"one {oneof} is empty or of a later revision")
    header = worker.header_from_pb(message.header)
    event = form.decode(getattr(message, field))
    if note is not None:
        note(header, message.ByteSize(), time.monotonic_ns() - started_ns)
    return worker.Addressed(header, event)
