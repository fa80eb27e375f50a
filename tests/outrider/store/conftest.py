"""One suite, both places."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from outrider.store import Namespace, Store
from outrider.store.access import Access
from outrider.store.backend import Backend
from outrider.store.memory import MemoryBackend
from outrider.store.redis_backend import RedisBackend
from tests.support.redis_server import RedisServer

HERE = Namespace("tokenizer", "model", tenant="here")


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["memory", "redis"])
async def backend(request) -> AsyncIterator[Backend]:
    if request.param == "memory":
        yield MemoryBackend()
        return
    server = request.getfixturevalue("shared_redis")
    server.client.flushall()
    place = RedisBackend(server.url)
    yield place
    await place.close()


@pytest.fixture
def store(backend) -> Store:
    # Patient reads: what is tested is what they give, not how soon.
    return Store(backend, access=Access(backend, read_s=5.0))
