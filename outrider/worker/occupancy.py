"""The share of time in which an engine computes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

WINDOW_NS = 1_000_000_000
"""How far back the share looks."""


class Occupancy:
    """Told by the engine's thread when it begins and ends to compute; read on any.

    Example: of the last second it computed from 0.2 to 0.5 and has computed since 0.9: the share is 0.4.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        # Stretches that ended within the window, and the time that they take together.
        self._stretches: deque[tuple[int, int]] = deque()
        self._total_ns = 0
        self._began_ns: int | None = None

    def begin(self) -> None:
        """Computing begins."""
        with self._lock:
            self._began_ns = self._clock_ns()

    def end(self) -> None:
        """It has ended."""
        with self._lock:
            if self._began_ns is None:
                return
            now_ns = self._clock_ns()
            self._stretches.append((self._began_ns, now_ns))
            self._total_ns += now_ns - self._began_ns
            self._began_ns = None
            self._forget(now_ns - WINDOW_NS)

    @property
    def share(self) -> float:
        """Of the last second, 0 to 1."""
        with self._lock:
            now_ns = self._clock_ns()
            since_ns = now_ns - WINDOW_NS
            self._forget(since_ns)
            busy_ns = self._total_ns
            if self._stretches:
                busy_ns -= max(0, since_ns - self._stretches[0][0])
            if self._began_ns is not None:
                busy_ns += now_ns - max(self._began_ns, since_ns)
        return min(1.0, busy_ns / WINDOW_NS)

    def _forget(self, before_ns: int) -> None:
        while self._stretches and self._stretches[0][1] <= before_ns:
            began_ns, ended_ns = self._stretches.popleft()
            self._total_ns -= ended_ns - began_ns
