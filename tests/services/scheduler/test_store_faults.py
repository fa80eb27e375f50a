"""A real Redis that fails while sessions run: the ids are those of plain decoding, and it is used again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from outrider.store import Store
from outrider.store.access import Access
from outrider.store.redis_backend import RedisBackend
from outrider.wire.generation import DraftSource
from tests.support.redis_server import RedisServer
from tests.support.scripted_workers import wrong_at

Fault = Callable[[RedisServer], None]


def filled_by_somebody_else(server: RedisServer) -> None:
    client = server.client
    for index, key in enumerate(client.keys("outrider:*")):
        client.delete(key)
        (client.lpush if index % 2 else client.set)(key, b"garbage")


def full(server: RedisServer) -> None:
    server.client.config_set("maxmemory-policy", "noeviction")
    server.client.config_set("maxmemory", 1)


def evicting(server: RedisServer) -> None:
    server.client.config_set("maxmemory-policy", "allkeys-lfu")
    server.client.config_set("maxmemory", 1)


def restarted(server: RedisServer) -> None:
    server.kill()
    server.start()


def cured(server: RedisServer) -> None:
    """Whatever it was."""
    server.go_on() if server.is_running else server.start()
    server.client.config_set("maxmemory", 0)
    server.client.flushall()


@pytest.mark.parametrize(
    "fault",
    [
        RedisServer.stop_answering,
        RedisServer.kill,
        restarted,
        lambda server: server.client.flushall(),
        full,
        evicting,
        filled_by_somebody_else,
    ],
    ids=["slow", "down", "restarted", "flushed", "full", "evicting", "filled by somebody else"],
)
async def test_a_fault_under_a_running_session(bench, run, tmp_path, fault: Fault):
    with RedisServer(tmp_path) as server:
        now = [0.0]
        backend = RedisBackend(server.url)
        bench.store = Store(backend, access=Access(backend, read_s=0.05, clock=lambda: now[0]))
        bench.validator()
        right = wrong_at(3, bench.target)
        strikes = iter([*[None] * 4, fault])

        def propose(*arguments):
            """The draft is asked in the middle of a session: there it happens."""
            strike = next(strikes, None)
            if strike is not None:
                strike(server)
            now[0] += 1.0
            return right(*arguments)

        bench.draft(propose)
        for _ in range(3):
            delivered = await run(bench.session(k=6, source=None, adapts=True))
            assert delivered.ids == bench.plain()
            assert delivered.logprobs == bench.plain_logprobs()
            await bench.store.flush()
        assert next(strikes, "struck") == "struck"
        cured(server)
        await _used_again(bench, run, now)
        await bench.store._access.close()


async def _used_again(bench, run, now) -> None:
    """An answer is remembered, and drafted from."""
    for _ in range(100):
        now[0] += 60
        await run(bench.session(k=6, source=DraftSource.CANDIDATE_CACHE))
        await bench.store.flush()
        delivered = await run(bench.session(k=6, source=DraftSource.CANDIDATE_CACHE))
        assert delivered.ids == bench.plain()
        if delivered.finished.counters.accepted:
            assert bench.store.state.healthy
            return
        await asyncio.sleep(0.05)
    raise AssertionError(bench.store.state)
