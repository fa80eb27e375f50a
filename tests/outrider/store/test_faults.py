"""Redis slow, gone, restarted, full, evicting, behind a login or TLS: lookups go on, and it is used again."""

from __future__ import annotations

import asyncio
import logging
import subprocess

import pytest

from outrider.rpc.errors import Unavailable
from outrider.store import Continuation, Store, open_store
from outrider.store.access import MAX_LATE, MAX_QUEUED, MAX_READS, Access
from outrider.store.backend import MAX_FIELDS, MAX_VALUE_BYTES, Put
from outrider.store.health import FAILURES, FIRST_PAUSE_S, LAST_PAUSE_S, Breaker
from outrider.store.memory import MemoryBackend
from outrider.store.patterns import _key
from outrider.store.redis_backend import RedisBackend
from tests.outrider.store.conftest import HERE
from tests.support.redis_server import RedisServer
from tests.support.waiting import until

TEXT = [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.fixture
def server(tmp_path):
    with RedisServer(tmp_path) as started:
        yield started


@pytest.fixture
async def now():
    """A clock that tests move."""
    return [100.0]


@pytest.fixture
async def store(server, now):
    backend = RedisBackend(server.url)
    opened = Store(backend, access=Access(backend, read_s=0.2, clock=lambda: now[0]))
    opened.patterns.learn(HERE, TEXT, 2, len(TEXT))
    await opened.flush()
    yield opened
    await opened._access.close()


async def until_left_alone(store, now):
    for _ in range(FAILURES * 2):
        now[0] += 10  # what was read a moment ago is not asked for again
        assert (await store.patterns.lookup(HERE, [1, 2], 3)) == Continuation()
        await asyncio.sleep(0)
    assert not store.state.healthy
    assert store.state.reason


async def until_used_again(store, now):
    """Pauses pass, and what is asked for comes again."""
    for _ in range(200):
        now[0] += 60
        found = await store.patterns.lookup(HERE, [1, 2], 3)
        if found.tokens:
            assert store.state.healthy
            return found
        store.patterns.learn(HERE, TEXT, 2, len(TEXT))
        await store.flush()
        await asyncio.sleep(0.05)
    raise AssertionError(f"it is not used again: {store.state}")


async def test_a_server_that_says_nothing_is_left_alone_until_it_does(store, server, now, caplog):
    server.stop_answering()
    with caplog.at_level(logging.INFO):
        await until_left_alone(store, now)
        failed = store.state.num_failed_reads
        # Nobody waits for it any more.
        await store.patterns.lookup(HERE, [3, 4], 3)
        assert store.state.num_failed_reads == failed + 1
        server.go_on()
        assert (await until_used_again(store, now)).tokens == (3, 4, 5)


async def test_a_server_that_is_killed_and_started_again(store, server, now):
    server.kill()
    await until_left_alone(store, now)
    server.start()  # empty
    assert (await until_used_again(store, now)).tokens == (3, 4, 5)


async def test_a_server_that_was_never_there(server, now):
    server.kill()
    backend = RedisBackend(server.url)
    store = Store(backend, access=Access(backend, read_s=0.2, clock=lambda: now[0]))
    await until_left_alone(store, now)
    store.patterns.learn(HERE, TEXT, 2, len(TEXT))
    now[0] += 60
    await store.flush()
    assert store.state.num_dropped_writes > 0
    await store._access.close()


async def test_a_server_that_forgets_everything(store, server, now):
    server.client.flushall()
    now[0] += 60
    assert await store.patterns.lookup(HERE, [1, 2], 3) == Continuation()
    assert store.state.healthy
    await until_used_again(store, now)


async def test_a_full_server_refuses_writes_and_still_reads(store, server, now):
    server.client.config_set("maxmemory-policy", "noeviction")
    server.client.config_set("maxmemory", 1)
    for _ in range(FAILURES):
        store.patterns.learn(HERE, TEXT, 2, len(TEXT))
        await store.flush()
    assert store.state.num_dropped_writes > 0
    assert "OutOfMemory" in store.state.reason
    # Reads come through, and are no sign that writes do.
    now[0] += 60
    assert (await store.patterns.lookup(HERE, [1, 2], 3)).tokens == (3, 4, 5)
    assert "OutOfMemory" in store.state.reason
    server.client.config_set("maxmemory", 0)
    before = store._access.tally.num_writes
    now[0] += 60
    store.patterns.learn(HERE, TEXT, 2, len(TEXT))
    await store.flush()
    assert store._access.tally.num_writes > before
    assert store.state.healthy


async def test_a_server_that_evicts(store, server, now):
    server.client.config_set("maxmemory-policy", "allkeys-lfu")
    server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] + 200_000)
    for number in range(40):
        other = [1000 + number * 50 + at for at in range(50)]
        store.patterns.learn(HERE, other, 2, len(other))
        await store.flush()
    assert server.client.info("stats")["evicted_keys"] > 0
    assert store.state.healthy


async def test_one_line_says_so_and_one_that_it_is_over(store, server, now, capsys):
    from outrider.telemetry import configure_logging

    configure_logging("test")
    server.kill()
    await until_left_alone(store, now)
    for _ in range(5):
        now[0] += 60
        await store.patterns.lookup(HERE, [1, 2], 3)
    server.start()
    await until_used_again(store, now)
    lines = capsys.readouterr().err
    assert lines.count("store_left_alone") == 1
    assert lines.count("store_used_again") == 1


async def test_too_many_writes_are_dropped_and_counted():
    store = Store(MemoryBackend())
    for _ in range(20):
        store.patterns.learn(HERE, list(range(400)), 0, 400)
    assert store.state.num_dropped_writes > 0
    assert store._access.num_queued == MAX_QUEUED


async def test_many_reads_at_a_time_are_all_answered(store, now):
    now[0] += 60
    found = await asyncio.gather(*(store.patterns.lookup(HERE, [1, 2], 3) for _ in range(MAX_READS)))
    assert [each.tokens for each in found] == [(3, 4, 5)] * MAX_READS
    assert MAX_READS > MAX_LATE
    assert store.state.num_failed_reads == 0


class Slow(RedisBackend):
    """Answers rightly, each time too late."""

    slow = True

    async def counts(self, keys):
        found = await super().counts(keys)
        if self.slow:
            await asyncio.sleep(0.2)
        return found


async def test_a_server_that_always_answers_too_late_is_left_alone(server, now):
    """A late answer is no sign of health."""
    backend = Slow(server.url)
    store = Store(backend, access=Access(backend, read_s=0.1, clock=lambda: now[0]))
    store.patterns.learn(HERE, TEXT, 2, len(TEXT))
    await store.flush()
    for _ in range(FAILURES):
        assert await store.patterns.lookup(HERE, [1, 2], 3) == Continuation()
        await asyncio.gather(*store._access._reading)  # they come, in the end
    assert "no answer within" in store.state.reason
    backend.slow = False
    assert (await until_used_again(store, now)).tokens == (3, 4, 5)
    await store._access.close()


async def test_nobody_asks_and_it_is_used_again(server, now, monkeypatch):
    """The store looks by itself whether the server is back, for reads and for writes."""
    monkeypatch.setattr("outrider.store.access.FLUSH_S", 0.01)
    backend = RedisBackend(server.url)
    async with Store(backend, access=Access(backend, read_s=5.0, clock=lambda: now[0])) as store:
        server.client.config_set("maxmemory-policy", "noeviction")
        server.client.config_set("maxmemory", 1)
        while not store._access.health.writes.reason:
            store.patterns.learn(HERE, TEXT, 2, len(TEXT))
            await asyncio.sleep(0.01)
        server.kill()
        while not store._access.health.reads.reason:
            await store.patterns.lookup(HERE, [1, 2], 3)
            now[0] += 60
        server.start()
        while store.state.reason:
            now[0] += 60
            await asyncio.sleep(0.01)
        assert server.client.get("outrider:1:probe") == b"1"


async def test_a_server_that_is_not_there_is_told_at_the_start(server, now, capsys):
    from outrider.telemetry import configure_logging

    configure_logging("test")
    server.kill()
    backend = RedisBackend(server.url)
    async with Store(backend, access=Access(backend, clock=lambda: now[0])) as store:
        await until(lambda: not store.state.healthy)
    assert capsys.readouterr().err.count("store_left_alone") == 1


class Held(RedisBackend):
    """Sends what is to be written when told so."""

    def __init__(self, url):
        super().__init__(url)
        self.let_go = asyncio.Event()

    async def apply(self, writes):
        await self.let_go.wait()
        return await super().apply(writes)


async def test_a_purge_waits_for_what_is_being_written(server):
    """Else it would be written behind the purge."""
    backend = Held(server.url)
    store = Store(backend)
    store.patterns.learn(HERE, TEXT, 2, len(TEXT))
    writing = asyncio.create_task(store.flush())
    await asyncio.sleep(0)
    purging = asyncio.create_task(store.purge("here"))
    await asyncio.sleep(0.05)
    backend.let_go.set()
    await writing
    assert await purging > 0
    assert server.client.dbsize() == 0
    await store._access.close()


async def test_a_purge_that_does_not_come_through_says_so(store, server):
    server.kill()
    with pytest.raises(Unavailable, match="try again"):
        await store.purge("here")


async def test_what_somebody_made_huge_is_read_up_to_a_bound(store, server, now):
    """Parsing all of it would hold up every session."""
    await store._access.backend.apply([Put("outrider:1:huge", b"x" * (MAX_VALUE_BYTES + 1), 60)])
    assert await store._access.values(["outrider:1:huge"]) == [None]
    fields = {number.to_bytes(4, "little"): 1 for number in range(10_000)}
    server.client.hset(_key(HERE, [1, 2]), mapping=fields)
    now[0] += 60
    (counts,) = await store._access.backend.counts([_key(HERE, [1, 2])])
    assert len(counts) == MAX_FIELDS
    await store.patterns.lookup(HERE, [1, 2], 3)
    assert store.state.healthy


def test_a_breaker_opens_pauses_longer_and_closes():
    now, told = [0.0], []
    breaker = Breaker(lambda: now[0], lambda: told.append(breaker.reason))
    breaker.failed("one")
    breaker.worked()
    for _ in range(FAILURES - 1):
        breaker.failed("two")
    assert breaker.allows
    assert told == []
    breaker.failed("three")
    assert not breaker.allows
    for doublings in range(10):
        pause_s = min(LAST_PAUSE_S, FIRST_PAUSE_S * 2**doublings)
        breaker.failed("of before the pause")
        now[0] += pause_s * 0.99
        assert not breaker.allows
        now[0] += pause_s * 0.02
        assert breaker.allows
        breaker.failed("four")  # one is enough now
    breaker.worked()
    assert breaker.allows
    assert told[0] == "three"
    assert set(told[1:-1]) == {"four"}
    assert told[-1] == ""


COMMANDS = [
    "hrandfield",
    "hincrby",
    "hdel",
    "getrange",
    "set",
    "expire",
    "scan",
    "unlink",
    "select",
    "client|setname",
]
"""What docs/store.md says is enough."""


async def test_a_user_and_a_password(server):
    server.client.acl_setuser(
        "outrider",
        enabled=True,
        passwords=["+open sesame"],
        keys=["outrider:*"],
        commands=[f"+{command}" for command in COMMANDS],
    )
    server.client.acl_setuser("default", enabled=False)
    url = f"redis://outrider:open%20sesame@127.0.0.1:{server.port}/0"
    await _writes_and_reads(url)
    async with open_store(url) as store:
        assert await store.purge("here") > 0
    refused = open_store(f"redis://outrider:geheim@127.0.0.1:{server.port}/0")
    while refused.state.healthy:
        assert await refused.patterns.lookup(HERE, [1, 2], 3) == Continuation()
        await asyncio.sleep(0.01)
    assert "geheim" not in refused.state.reason
    await refused._access.close()


@pytest.fixture
def certificate(tmp_path):
    """Its file, and that of its key."""
    key, made = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*request, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    return made, key


async def test_tls(tmp_path, certificate):
    made, key = (str(each) for each in certificate)
    options = ["--tls-cert-file", made, "--tls-key-file", key, "--tls-ca-cert-file", made]
    with RedisServer(
        tmp_path, *options, "--tls-auth-clients", "no", tls=True, ssl=True, ssl_ca_certs=made
    ) as server:
        await _writes_and_reads(f"rediss://127.0.0.1:{server.port}/0?ssl_ca_certs={made}")


async def _writes_and_reads(url: str) -> None:
    async with open_store(url) as store:
        for _ in range(100):
            store.patterns.learn(HERE, TEXT, 2, len(TEXT))
            await store.flush()
            if (await store.patterns.lookup(HERE, [1, 2], 3)).tokens:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(store.state.reason)
