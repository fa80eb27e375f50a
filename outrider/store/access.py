"""The way to a backend that may be slow, full or gone: reads are bounded, writes wait."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from outrider.store.backend import Backend, BackendFailed, Counts, Put, Write
from outrider.store.first_level import FirstLevel
from outrider.store.health import Health
from outrider.store.namespace import ROOT
from outrider.store.tally import Tally
from outrider.telemetry import get_logger

log = get_logger(__name__)

T = TypeVar("T")

READ_S = 0.01
"""A read is waited for so long: a round takes many times that, and goes on without."""
MAX_READS = 32
"""Reads at a time; more go without an answer, and say nothing about the backend."""
MAX_LATE = 4
"""Of those, reads that nobody waits for any more; with so many none is begun."""
FLUSH_S = 0.1
"""Writes are collected for so long."""
MAX_QUEUED = 20_000
MAX_BATCH = 256
"""Writes that are sent together: rounds get their turn between two batches."""
LAST_FLUSH_S = 2.0
"""What waits at the end may take so long to be written."""
PROBE = f"{ROOT}:probe"
"""Read and written to see whether a backend that was left alone is back."""
PROBE_TTL_S = 60


class Access:
    """Reads with a limit of time, writes in the background, and a pause where they do not come through.

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
        self.health = Health(backend.kind, clock)
        self._read_s = read_s
        self._first_level = FirstLevel(clock) if backend.is_remote else None
        self._queue: deque[Write] = deque()
        # Held by whoever writes or removes: what is under way may not be written behind a purge.
        self._writing = asyncio.Lock()
        self._num_purges = 0
        self._reading: set[asyncio.Task[object]] = set()
        self._late: set[asyncio.Task[object]] = set()

    @property
    def num_queued(self) -> int:
        """Writes that wait."""
        return len(self._queue)

    async def counts(self, keys: Sequence[str]) -> list[Counts]:
        """As in `Backend`; empty for each key where it does not answer in time. Never raises."""
        known: Mapping[str, Counts] = self._first_level.counts(keys) if self._first_level else {}
        missing = [key for key in keys if key not in known]
        if missing:
            num_purges = self._num_purges
            answer = await self._read(lambda: self.backend.counts(missing))
            if answer is None:
                return [known.get(key, {}) for key in keys]
            found = dict(zip(missing, answer, strict=True))
            # What was read before a purge is not kept behind it.
            if self._first_level and num_purges == self._num_purges:
                self._first_level.keep(found)
            known = {**known, **found}
        return [known[key] for key in keys]

    async def values(self, keys: Sequence[str]) -> list[bytes | None]:
        """As in `Backend`; None for each key where it does not answer in time. Never raises."""
        return await self._read(lambda: self.backend.values(keys)) or [None] * len(keys)

    def write(self, writes: Sequence[Write]) -> None:
        """Have it done soon; dropped and counted where too much waits already."""
        room = max(0, MAX_QUEUED - len(self._queue))
        self._queue.extend(writes[:room])
        self.tally.num_dropped_writes += max(0, len(writes) - room)

    async def remove(self, prefix: str) -> int:
        """As in `Backend`, with what waits to be written. Raises BackendFailed."""
        async with self._writing:
            self._queue = deque(write for write in self._queue if not write.key.startswith(prefix))
            try:
                return await self.backend.remove(prefix)
            finally:
                self._num_purges += 1
                if self._first_level:
                    self._first_level.forget(prefix)

    async def run(self) -> None:
        """Write what waits, and look whether what was left alone is back, until cancelled."""
        await self._greet()
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                await self._probe()
                await self.flush()
            except Exception:  # whatever it is, later writes are not to wait for ever
                log.exception("store_failed")

    async def flush(self) -> None:
        """Write what waits, unless the backend is left alone at the moment."""
        async with self._writing:
            while self._queue and self.health.writes.allows:
                batch = [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
                try:
                    num_refused = await self.backend.apply(batch)
                except BackendFailed as error:
                    self.tally.num_dropped_writes += len(batch)
                    self.health.writes.failed(str(error))
                    return
                self.tally.num_writes += len(batch) - num_refused
                self.tally.num_dropped_writes += num_refused
                self.health.writes.worked()
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Write what waits, once, and let go."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH_S):
                await self.flush()
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        await self.backend.close()

    async def _greet(self) -> None:
        """Connect, before somebody waits for it; a store that can not be reached is told at once."""
        try:
            await self.backend.values([PROBE])
        except BackendFailed as error:
            self.health.reads.failed(str(error), at_once=True)

    async def _probe(self) -> None:
        """Ask where nobody may have asked since."""
        if self.health.reads.reason:
            await self._in_time(lambda: self.backend.values([PROBE]))
        if self.health.writes.reason and not self._queue:
            self._queue.append(Put(PROBE, b"1", PROBE_TTL_S))

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T | None:
        answer = await self._in_time(read)
        self.tally.num_failed_reads += answer is None
        return answer

    async def _in_time(self, read: Callable[[], Awaitable[T]]) -> T | None:
        """What it gives within the limit.

        A late one is not cancelled, which would leave its connection in the middle of an answer.
        """
        if self._first_level is None:  # it is in this process
            return await read()
        busy = len(self._late) >= MAX_LATE or len(self._reading) >= MAX_READS
        if busy or not self.health.reads.allows:
            return None
        task = asyncio.ensure_future(read())
        self._reading.add(task)
        task.add_done_callback(self._read_done)
        done, _ = await asyncio.wait({task}, timeout=self._read_s)
        if not done:
            self._late.add(task)
            self.health.reads.failed(f"no answer within {self._read_s * 1000:g} ms")
            return None
        return None if task.cancelled() or task.exception() is not None else task.result()

    def _read_done(self, task: asyncio.Task[object]) -> None:
        self._reading.discard(task)
        late = task in self._late
        self._late.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if late:
            return  # has failed already, whatever it says now
        if error is None:
            self.health.reads.worked()
        elif isinstance(error, BackendFailed):
            self.health.reads.failed(str(error))
        else:
            log.error("store_failed", exc_info=error)
            self.health.reads.failed("internal error; the log has the details")
