"""The hand-over from the engine's thread to the event loop."""

from __future__ import annotations

import asyncio

import pytest

from outrider.rpc.errors import ResourceExhausted
from outrider.wire.worker import Addressed, Header, Stale
from outrider.worker import connection as module
from outrider.worker.connection import Connection

EVENT = Addressed(Header(b"s" * 16, 1, 1, 1), Stale())


async def test_what_is_ready_together_comes_together():
    connection = Connection(b"p" * 16)
    await asyncio.to_thread(lambda: [connection.deliver([EVENT]) for _ in range(3)])
    messages = connection.messages()
    assert len((await anext(messages)).events) == 3
    connection.deliver([EVENT, EVENT])
    connection.end()
    # What was queued before the end is still written.
    assert len((await anext(messages)).events) == 2
    with pytest.raises(StopAsyncIteration):
        await anext(messages)


async def test_go_away_needs_no_event():
    connection = Connection(b"p" * 16)
    connection.announce_end(1500)
    outgoing = await anext(connection.messages())
    assert outgoing.events == []
    assert outgoing.go_away is not None
    assert outgoing.go_away.deadline_ms == 1500


async def test_an_error_ends_the_stream_at_once():
    connection = Connection(b"p" * 16)
    connection.deliver([EVENT])
    connection.end(ValueError("broken"))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="broken"):
        await anext(connection.messages())


async def test_a_peer_that_never_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_UNREAD", 10)
    connection = Connection(b"p" * 16)
    for _ in range(11):
        connection.deliver([EVENT])
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhausted, match="unread"):
        await anext(connection.messages())


def test_events_for_a_loop_that_has_closed_are_dropped():
    async def make() -> Connection:
        return Connection(b"p" * 16)

    connection = asyncio.run(make())
    connection.deliver([EVENT])
    connection.end()
