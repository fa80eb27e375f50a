"""The embedded place: a dictionary of this process, bounded, least frequently used first to go."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from outrider.store.backend import MAX_FIELDS, Count, Counts, Drop, Put, Write
from outrider.store.namespace import tenant_part

MAX_BYTES = 128 << 20
ENTRY_BYTES = 440
"""What an entry takes besides its values: key, dictionary, places in others (measured on CPython 3.11)."""
FIELD_BYTES = 60
"""The same of a field."""
SAMPLE = 8


@dataclass(slots=True)
class _Entry:
    value: bytes | dict[bytes, int]
    expires_s: float
    hits: int = 0
    num_bytes: int = ENTRY_BYTES


@dataclass(slots=True)
class _Share:
    """What a tenant has."""

    entries: OrderedDict[str, _Entry] = field(default_factory=OrderedDict)
    num_bytes: int = 0


class MemoryBackend:
    """Behaves like Redis with a policy of allkeys-lfu, except that a full tenant displaces its own entries.

    Args:
        max_bytes: of all entries, about.
        clock: seconds, for the time to live.
    """

    kind = "memory"
    is_remote = False

    def __init__(self, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._shares: dict[str, _Share] = {}
        self._num_bytes = 0

    @property
    def num_entries(self) -> int:
        """Keys that are held."""
        return sum(len(share.entries) for share in self._shares.values())

    @property
    def num_bytes(self) -> int:
        """What they take, about."""
        return self._num_bytes

    async def counts(self, keys: Sequence[str]) -> list[Counts]:
        """As in `Backend`."""
        found = (self._read(key) for key in keys)
        return [dict(entry.value) if entry and isinstance(entry.value, dict) else {} for entry in found]

    async def values(self, keys: Sequence[str]) -> list[bytes | None]:
        """As in `Backend`."""
        found = (self._read(key) for key in keys)
        return [entry.value if entry and isinstance(entry.value, bytes) else None for entry in found]

    async def apply(self, writes: Sequence[Write]) -> int:
        """As in `Backend`."""
        num_refused = 0
        for write in writes:
            match write:
                case Put():
                    entry = self._entry(write.key, write.ttl_s)
                    entry.value = write.value
                    self._resize(write.key, entry, ENTRY_BYTES + len(write.value))
                case Count():
                    num_refused += not self._count(write)
                case Drop():
                    self._drop(write)
        return num_refused

    async def remove(self, prefix: str) -> int:
        """As in `Backend`."""
        keys = [key for share in self._shares.values() for key in share.entries if key.startswith(prefix)]
        for key in keys:
            self._delete(key)
        return len(keys)

    async def close(self) -> None:
        """As in `Backend`."""

    def _count(self, write: Count) -> bool:
        entry = self._entry(write.key, write.ttl_s)
        counts = entry.value
        if not isinstance(counts, dict):
            return False
        num_bytes = entry.num_bytes
        if write.field not in counts:
            num_bytes += FIELD_BYTES + len(write.field)
            if len(counts) >= MAX_FIELDS:
                rarest = min(counts, key=counts.__getitem__)
                del counts[rarest]
                num_bytes -= FIELD_BYTES + len(rarest)
        counts[write.field] = counts.get(write.field, 0) + write.amount
        self._resize(write.key, entry, num_bytes)
        return True

    def _drop(self, write: Drop) -> None:
        entry = self._find(write.key)
        if entry is None or not isinstance(entry.value, dict):
            return
        gone = [each for each in write.fields if entry.value.pop(each, None) is not None]
        self._resize(write.key, entry, entry.num_bytes - sum(FIELD_BYTES + len(each) for each in gone))

    def _read(self, key: str) -> _Entry | None:
        entry = self._find(key)
        if entry is not None:
            entry.hits += 1
        return entry

    def _find(self, key: str) -> _Entry | None:
        share = self._shares.get(tenant_part(key))
        entry = share.entries.get(key) if share else None
        if entry is not None and entry.expires_s <= self._clock():
            self._delete(key)
            return None
        return entry

    def _entry(self, key: str, ttl_s: int) -> _Entry:
        """The entry to write to; a new one counts fields until it is put."""
        entry = self._find(key)
        if entry is None:
            share = self._shares.setdefault(tenant_part(key), _Share())
            entry = share.entries[key] = _Entry({}, 0.0)
            share.num_bytes += ENTRY_BYTES
            self._num_bytes += ENTRY_BYTES
        entry.expires_s = self._clock() + ttl_s
        return entry

    def _resize(self, key: str, entry: _Entry, num_bytes: int) -> None:
        """Book what an entry takes now, and make room for it."""
        part = tenant_part(key)
        self._shares[part].num_bytes += num_bytes - entry.num_bytes
        self._num_bytes += num_bytes - entry.num_bytes
        entry.num_bytes = num_bytes
        while self._num_bytes > self._max_bytes:
            self._make_room(part)

    def _make_room(self, part: str) -> None:
        """Whoever writes gives up something of its own, or, with less than its part of the room, the largest.

        The entry that was read least of the oldest few goes. Those that stay go to the end with half their
        hits, so that what was popular once ages.
        """
        share = self._shares.get(part)
        if share is None or share.num_bytes * len(self._shares) < self._max_bytes:
            share = max(self._shares.values(), key=lambda each: each.num_bytes)
        oldest = [share.entries.popitem(last=False) for _ in range(min(SAMPLE, len(share.entries)))]
        leaves, _ = min(oldest, key=lambda item: item[1].hits)
        for key, entry in oldest:
            if key != leaves:
                entry.hits //= 2
            share.entries[key] = entry
        self._delete(leaves)

    def _delete(self, key: str) -> None:
        part = tenant_part(key)
        share = self._shares[part]
        num_bytes = share.entries.pop(key).num_bytes
        share.num_bytes -= num_bytes
        self._num_bytes -= num_bytes
        if not share.entries:
            del self._shares[part]
