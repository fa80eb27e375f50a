"""The way to a backend that may be slow, full or gone: reads are bounded, writes wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from outrider.store.backend import Backend, BackendFailed, Counts, Write
from outrider.store.first_level import FirstLevel
from outrider.store.tally import Tally
from outrider.telemetry import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

log = get_logger(__name__)

T = TypeVar("T")

READ_S = 0.01
"""A read is waited for so long: a round takes many times that, and goes on without."""
MAX_LATE = 4
"""Reads that nobody waits for any more; with so many the backend counts as slow."""
FAILURES = 3
"""Failures with no success between them after which the backend is left alone for a while."""
FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 15.0
FLUSH_S = 0.1
"""Writes are collected for so long."""
MAX_QUEUED = 20_000
MAX_BATCH = 2_000


class Access:
    """Reads with a limit of time, writes in the background, and a pause where neither comes through.

    Args:
        backend: where things are kept.
        read_s: seconds that a read is waited for.
        clock: seconds, for pauses.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        read_s: float = READ_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.backend = backend
        self.tally = Tally()
        self._read_s = read_s
        self._clock = clock
        self._first_level = FirstLevel(clock) if backend.kind != "memory" else None
        self._queue: list[Write] = []
        self._late: set[asyncio.Task[object]] = set()
        self._num_failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._not_before_s = 0.0
        self.reason = ""
        """Why it is not used at the moment; empty: it is."""

    async def counts(self, keys: Sequence[str]) -> list[Counts]:
        """As in `Backend`; empty for each key where it does not answer in time. Never raises."""
        known: Mapping[str, Counts] = self._first_level.counts(keys) if self._first_level else {}
        missing = [key for key in keys if key not in known]
        if missing:
            answer = await self._within(lambda: self.backend.counts(missing))
            if answer is None:
                return [known.get(key, {}) for key in keys]
            found = dict(zip(missing, answer, strict=True))
            if self._first_level:
                self._first_level.keep(found)
            known = {**known, **found}
        return [known[key] for key in keys]

    async def values(self, keys: Sequence[str]) -> list[bytes | None]:
        """As in `Backend`; None for each key where it does not answer in time. Never raises."""
        return await self._within(lambda: self.backend.values(keys)) or [None] * len(keys)

    def write(self, writes: Sequence[Write]) -> None:
        """Have it done soon; dropped and counted where too much waits already."""
        room = max(0, MAX_QUEUED - len(self._queue))
        self._queue.extend(writes[:room])
        self.tally.num_dropped_writes += max(0, len(writes) - room)

    async def remove(self, prefix: str) -> int:
        """As in `Backend`, with what waits to be written. Raises BackendFailed."""
        self._queue = [write for write in self._queue if not write.key.startswith(prefix)]
        if self._first_level:
            self._first_level.forget(prefix)
        return await self.backend.remove(prefix)

    async def run(self) -> None:
        """Write what waits, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Write what waits, unless the backend is left alone at the moment."""
        while self._queue and self._is_used():
            batch, self._queue = self._queue[:MAX_BATCH], self._queue[MAX_BATCH:]
            try:
                num_refused = await self.backend.apply(batch)
            except BackendFailed as error:
                self.tally.num_dropped_writes += len(batch)
                self._failed(str(error))
                return
            self.tally.num_writes += len(batch) - num_refused
            self.tally.num_dropped_writes += num_refused
            self._worked()

    async def close(self) -> None:
        """Write what waits, once, and let go."""
        await self.flush()
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await self.backend.close()

    def _is_used(self) -> bool:
        return not self.reason or self._clock() >= self._not_before_s

    async def _within(self, read: Callable[[], Awaitable[T]]) -> T | None:
        """What it gives within the limit.

        A late one is not cancelled, which would leave its connection in the middle of an answer.
        """
        if not self._is_used() or len(self._late) >= MAX_LATE:
            self.tally.num_failed_reads += 1
            return None
        if self._first_level is None:  # it is in this process
            return await read()
        task = asyncio.ensure_future(read())
        self._late.add(task)
        task.add_done_callback(self._read_done)
        done, _ = await asyncio.wait({task}, timeout=self._read_s)
        if not done:
            self.tally.num_failed_reads += 1
            self._failed(f"no answer within {self._read_s * 1000:g} ms")
            return None
        if task.cancelled() or task.exception() is not None:
            self.tally.num_failed_reads += 1
            return None
        return task.result()

    def _read_done(self, task: asyncio.Task[object]) -> None:
        self._late.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._worked()
        elif isinstance(error, BackendFailed):
            self._failed(str(error))
        else:
            log.error("store_failed", exc_info=error)
            self._failed("internal error; the log has the details")

    def _failed(self, why: str) -> None:
        self._num_failures += 1
        if self._num_failures < FAILURES:
            return
        if not self.reason:
            log.warning("store_left_alone", store=self.backend.kind, reason=why)
            self._pause_s = FIRST_PAUSE_S
        elif self._clock() >= self._not_before_s:
            self._pause_s = min(LAST_PAUSE_S, 2 * self._pause_s)
        self.reason = why
        self._not_before_s = self._clock() + self._pause_s

    def _worked(self) -> None:
        self._num_failures = 0
        if self.reason:
            log.info("store_used_again", store=self.backend.kind)
            self.reason = ""
