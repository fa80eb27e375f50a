"""The shared place: a Redis or Valkey server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from outrider.store.backend import (
    MAX_FIELDS,
    MAX_VALUE_BYTES,
    BackendFailed,
    Count,
    Counts,
    Drop,
    Put,
    Write,
)

SOCKET_S = 1.0
"""A command that takes longer is given up; readers wait far less."""
SCANNED = 1000


class RedisBackend:
    """Redis through redis-py. Connections are made when needed, and made again when they break.

    The commands need Redis 6.2, or Valkey. What somebody else may have written there is read up to a bound:
    parsing a hash of a million fields would hold up every session of the process.

    Args:
        url: redis:// or rediss://, with user, password and database where there are some.

    Raises:
        ValueError: the URL has an option that there is not, or a value that it can not have.
    """

    kind = "redis"
    is_remote = True

    def __init__(self, url: str) -> None:
        self._client: Redis = Redis.from_url(
            url,
            socket_timeout=SOCKET_S,
            socket_connect_timeout=SOCKET_S,
            # Whoever uses this has its own idea of when to try again.
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
            client_name="outrider",
        )
        pool: Any = self._client.connection_pool
        try:
            # Nothing is sent yet, but options of the URL are looked at.
            pool.make_connection()
        except (RedisError, TypeError) as error:
            raise ValueError(str(error)) from error

    async def counts(self, keys: Sequence[str]) -> list[Counts]:
        """As in `Backend`."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.hrandfield(key, MAX_FIELDS, withvalues=True)
        return [_counts(each) for each in await self._run(pipeline)]

    async def values(self, keys: Sequence[str]) -> list[bytes | None]:
        """As in `Backend`."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.getrange(key, 0, MAX_VALUE_BYTES)
        return [_value(each) for each in await self._run(pipeline)]

    async def apply(self, writes: Sequence[Write]) -> int:
        """As in `Backend`."""
        pipeline = self._client.pipeline(transaction=False)
        expiring: dict[str, int] = {}
        for write in writes:
            match write:
                case Put():
                    pipeline.set(write.key, write.value, ex=write.ttl_s)
                case Count():
                    pipeline.hincrby(write.key, write.field, write.amount)
                    expiring[write.key] = write.ttl_s
                case Drop():
                    pipeline.hdel(write.key, *write.fields)
        for key, ttl_s in expiring.items():
            pipeline.expire(key, ttl_s)
        answers = (await self._run(pipeline))[: len(writes)]
        refused = [each for each in answers if isinstance(each, Exception)]
        for each in refused:
            if not _is_about_a_key(each):
                raise BackendFailed(_words(each))
        return len(refused)

    async def remove(self, prefix: str) -> int:
        """As in `Backend`."""
        num_removed = 0
        try:
            keys: list[bytes] = []
            async for key in self._client.scan_iter(match=f"{prefix}*", count=SCANNED):
                keys.append(key)
                if len(keys) == SCANNED:
                    num_removed += await self._client.unlink(*keys)
                    keys.clear()
            if keys:
                num_removed += await self._client.unlink(*keys)
        except (RedisError, OSError, ValueError) as error:
            raise BackendFailed(_words(error)) from error
        return num_removed

    async def close(self) -> None:
        """As in `Backend`."""
        await self._client.aclose()

    async def _run(self, pipeline: Any) -> list[Any]:
        """The answers; one that is an error stands in its command's place."""
        try:
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError, ValueError) as error:
            raise BackendFailed(_words(error)) from error
        broken = [each for each in answers if isinstance(each, Exception)]
        if broken and len(broken) == len(answers) and not _is_about_a_key(broken[0]):
            raise BackendFailed(_words(broken[0]))
        return answers


def _is_about_a_key(error: Exception) -> bool:
    """Somebody else keeps something of another kind there."""
    return str(error).startswith(("WRONGTYPE", "hash value is not an integer"))


def _value(answer: Any) -> bytes | None:
    return answer if isinstance(answer, bytes) and 0 < len(answer) <= MAX_VALUE_BYTES else None


def _counts(answer: Any) -> Counts:
    """Of fields and counts by turns, or in pairs: that depends on the protocol."""
    if not isinstance(answer, list):
        return {}
    pairs = answer if answer and isinstance(answer[0], list) else zip(answer[::2], answer[1::2], strict=False)
    found = {}
    for field, count in pairs:
        try:
            found[bytes(field)] = int(count)
        except (TypeError, ValueError):
            continue
    return found


def _words(error: Exception) -> str:
    """What went wrong; redis-py's messages name hosts and commands, never a password."""
    return f"{type(error).__name__}: {error}"[:200]
