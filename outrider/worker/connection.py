"""What a worker has to say on one stream, handed over from the engine's thread to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from outrider.rpc.errors import ResourceExhausted
from outrider.wire.worker import Addressed, GoAway, WorkerLoad

MAX_UNREAD = 65_536
"""Events that a peer may leave unread; credit keeps an honest one far below."""


class Outgoing(NamedTuple):
    """What one message says: everything that was ready when it was made."""

    events: list[Addressed[Any]]
    go_away: GoAway | None


class Connection:
    """One stream of one scheduler. Made on the event loop; any thread may call `deliver` and `end`."""

    def __init__(self, peer_id: bytes) -> None:
        self.peer_id = peer_id
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._events: list[Addressed[Any]] = []
        self._go_away: GoAway | None = None
        self._tells_load = False
        # What the peer last heard of the worker's load; set by whoever writes the messages.
        self.told = WorkerLoad()
        self._ended = False
        self._error: Exception | None = None

    def deliver(self, events: Sequence[Addressed[Any]]) -> None:
        """Queue events, in order, from any thread; a stream that has ended drops them."""
        self._on_loop(self._put, events)

    def announce_end(self, deadline_ms: int) -> None:
        """Tell the peer that the stream ends soon."""
        self._go_away = GoAway(deadline_ms)
        self._wake.set()

    def tell_load(self) -> None:
        """Write a message even if it has nothing to say but the load. Event loop only."""
        self._tells_load = True
        self._wake.set()

    def end(self, error: Exception | None = None) -> None:
        """End the stream once what is queued was written; with `error`, at once and with its status."""
        self._on_loop(self._end, error)

    async def messages(self) -> AsyncIterator[Outgoing]:
        """What to write, until the stream ends; all that is ready together comes together."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._error is not None:
                raise self._error
            events, self._events = self._events, []
            go_away, self._go_away = self._go_away, None
            tells_load, self._tells_load = self._tells_load, False
            if events or go_away or tells_load:
                yield Outgoing(events, go_away)
            if self._ended and not self._events:
                return

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        # The loop is closed when the process ends with a forward under way: nobody is left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _end(self, error: Exception | None) -> None:
        self._ended = True
        self._error = self._error or error
        self._wake.set()

    def _put(self, events: Sequence[Addressed[Any]]) -> None:
        if self._ended:
            return
        self._events.extend(events)
        if len(self._events) > MAX_UNREAD:
            self._events.clear()
            message = f"the peer left more than {MAX_UNREAD} events unread"
            self._end(ResourceExhausted(message, retry_after_s=1.0))
        self._wake.set()
