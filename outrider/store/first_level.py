"""What was read a moment ago, before the network is asked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from outrider.store.backend import Counts

MAX_ENTRIES = 8192
TTL_S = 5.0
"""What other schedulers learn is seen so much later."""


class FirstLevel:
    """Bounded, least recently used first to go; absence is remembered like presence."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, Counts]] = OrderedDict()

    def counts(self, keys: Sequence[str]) -> Mapping[str, Counts]:
        """Of those keys that are known."""
        now, found = self._clock(), {}
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None and entry[0] > now:
                self._entries.move_to_end(key)
                found[key] = entry[1]
        return found

    def keep(self, found: Mapping[str, Counts]) -> None:
        """Remember what was read."""
        expires_s = self._clock() + TTL_S
        for key, counts in found.items():
            self._entries[key] = (expires_s, counts)
            self._entries.move_to_end(key)
        while len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)

    def forget(self, prefix: str) -> None:
        """All keys that begin so."""
        for key in [key for key in self._entries if key.startswith(prefix)]:
            del self._entries[key]
