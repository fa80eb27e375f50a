"""The embedded place: a dictionary of this process, bounded, least frequently used first to go."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.store.backend import Count, Counts, Drop, Put, Write
from outrider.store.namespace import tenant_part

MAX_ENTRIES = 200_000
"""About a hundred megabytes of patterns."""
SAMPLE = 8


@dataclass(slots=True)
class _Entry:
    value: bytes | dict[bytes, int]
    expires_s: float
    hits: int = 0


class MemoryBackend:
    """Behaves like Redis with a policy of allkeys-lfu, except that a full tenant displaces its own entries.

    Args:
        max_entries: keys in all.
        clock: seconds, for the time to live.
    """

    kind = "memory"

    def __init__(self, max_entries: int = MAX_ENTRIES, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_entries = max_entries
        self._clock = clock
        self._tenants: dict[str, OrderedDict[str, _Entry]] = {}
        self._num_entries = 0

    @property
    def num_entries(self) -> int:
        """Keys that are held."""
        return self._num_entries

    async def counts(self, keys: Sequence[str]) -> list[Counts]:
        """As in `Backend`."""
        found = (self._read(key) for key in keys)
        return [dict(value) if isinstance(value, dict) else {} for value in found]

    async def values(self, keys: Sequence[str]) -> list[bytes | None]:
        """As in `Backend`."""
        found = (self._read(key) for key in keys)
        return [value if isinstance(value, bytes) else None for value in found]

    async def apply(self, writes: Sequence[Write]) -> int:
        """As in `Backend`."""
        num_refused = 0
        for write in writes:
            match write:
                case Put():
                    self._entry(write.key, write.ttl_s).value = write.value
                case Count():
                    value = self._entry(write.key, write.ttl_s).value
                    if isinstance(value, dict):
                        value[write.field] = value.get(write.field, 0) + write.amount
                    else:
                        num_refused += 1
                case Drop():
                    held = self._read(write.key)
                    if isinstance(held, dict):
                        for field in write.fields:
                            held.pop(field, None)
        return num_refused

    async def remove(self, prefix: str) -> int:
        """As in `Backend`."""
        num_removed = 0
        for entries in list(self._tenants.values()):
            for key in [key for key in entries if key.startswith(prefix)]:
                self._delete(key)
                num_removed += 1
        return num_removed

    async def close(self) -> None:
        """As in `Backend`."""

    def _read(self, key: str) -> bytes | dict[bytes, int] | None:
        entries = self._tenants.get(tenant_part(key))
        entry = entries.get(key) if entries else None
        if entry is None:
            return None
        if entry.expires_s <= self._clock():
            self._delete(key)
            return None
        entry.hits += 1
        return entry.value

    def _entry(self, key: str, ttl_s: int) -> _Entry:
        """The entry to write to; a new one counts fields until it is put."""
        self._read(key)  # forgets one that has expired
        entries = self._tenants.setdefault(tenant_part(key), OrderedDict())
        entry = entries.get(key)
        expires_s = self._clock() + ttl_s
        if entry is None:
            if self._num_entries >= self._max_entries:
                self._make_room()
            entries = self._tenants.setdefault(tenant_part(key), OrderedDict())
            entry = entries[key] = _Entry({}, expires_s)
            self._num_entries += 1
        entry.expires_s = expires_s
        return entry

    def _make_room(self) -> None:
        """The tenant with the most entries loses the one that was read least of its oldest few.

        Those that stay go to the end with half their hits, so that what was popular once ages.
        """
        entries = max(self._tenants.values(), key=len)
        oldest = [entries.popitem(last=False) for _ in range(min(SAMPLE, len(entries)))]
        leaves = min(range(len(oldest)), key=lambda at: oldest[at][1].hits)
        for at, (key, entry) in enumerate(oldest):
            if at != leaves:
                entry.hits //= 2
                entries[key] = entry
        self._num_entries -= 1

    def _delete(self, key: str) -> None:
        part = tenant_part(key)
        del self._tenants[part][key]
        self._num_entries -= 1
        if not self._tenants[part]:
            del self._tenants[part]
