"""The store as a scheduler holds it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from outrider.rpc.errors import Unavailable
from outrider.store.access import Access
from outrider.store.backend import Backend, BackendFailed
from outrider.store.candidates import CandidateCache
from outrider.store.controls import ControlStore
from outrider.store.memory import MemoryBackend
from outrider.store.namespace import tenant_prefix
from outrider.store.patterns import PatternCache
from outrider.telemetry import Metrics, Reading
from outrider.telemetry import metric_names as names
from outrider.wire.state import StoreState


class BadStoreUrl(ValueError):
    """The URL names no store; the text says what to write, and repeats no password."""


class Store:
    """Patterns, answers and control state behind one access; an async context."""

    def __init__(
        self, backend: Backend, metrics: Metrics | None = None, access: Access | None = None
    ) -> None:
        self._access = access or Access(backend)
        self.patterns = PatternCache(self._access)
        self.candidates = CandidateCache(self._access)
        self.control = ControlStore(self._access)
        self._writing: asyncio.Task[None] | None = None
        if metrics is not None:
            metrics.read(self._readings)

    async def __aenter__(self) -> Self:
        self._writing = asyncio.create_task(self._access.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._access.close()

    @property
    def state(self) -> StoreState:
        """For `Describe`."""
        tally = self._access.tally
        return StoreState(
            kind=self._access.backend.kind,
            healthy=not self._access.health.reason,
            reason=self._access.health.reason,
            num_hits=tally.num_hits,
            num_misses=tally.num_misses,
            num_failed_reads=tally.num_failed_reads,
            num_dropped_writes=tally.num_dropped_writes,
        )

    async def flush(self) -> None:
        """Write now what waits to be written."""
        await self._access.flush()

    async def purge(self, tenant: str) -> int:
        """Forget all patterns and answers of a tenant; how many entries there were.

        Raises Unavailable.
        """
        try:
            return await self._access.remove(tenant_prefix(tenant))
        except BackendFailed as error:
            raise Unavailable(
                f"the store can not be purged now: {error}; try again", retry_after_s=1.0
            ) from error

    def _readings(self) -> list[Reading]:
        tally = self._access.tally
        return [
            Reading(names.STORE_HEALTHY, 0 if self._access.health.reason else 1),
            Reading(names.STORE_LOOKUPS, tally.num_hits, ("hit",)),
            Reading(names.STORE_LOOKUPS, tally.num_misses, ("miss",)),
            Reading(names.STORE_FAILED_READS, tally.num_failed_reads),
            Reading(names.STORE_WRITES, tally.num_writes),
            Reading(names.STORE_DROPPED_WRITES, tally.num_dropped_writes),
        ]


def check_url(url: str) -> None:
    """Raises BadStoreUrl for one that `open_store` can not open; connects to nothing."""
    _backend(url)


def open_store(url: str, metrics: Metrics | None = None) -> Store:
    """The store that a URL names; "" and memory:// are in this process.

    Raises BadStoreUrl.
    """
    return Store(_backend(url), metrics)


def _backend(url: str) -> Backend:
    if url in ("", "memory://"):
        return MemoryBackend()
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise BadStoreUrl(_ADVICE) from error
    if not known:
        raise BadStoreUrl(_ADVICE)
    from outrider.store.redis_backend import RedisBackend  # not needed without one

    try:
        return RedisBackend(url)
    except ValueError as error:
        raise BadStoreUrl(f"{_ADVICE} ({_without_secrets(error, url)})") from error


def _without_secrets(error: ValueError, url: str) -> str:
    """Its words, unless they repeat something of the URL that may be secret."""
    parts = urlsplit(url)
    words = str(error)
    secrets = [parts.password, *(value for _, value in parse_qsl(parts.query))]
    return "an option is unknown or wrong" if any(each and each in words for each in secrets) else words


_ADVICE = (
    "it is no URL of Redis; write redis://HOST:PORT/DATABASE, with USER:PASSWORD@ before the host where it "
    "asks for one, and rediss:// for TLS"
)
