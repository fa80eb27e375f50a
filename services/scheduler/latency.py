"""How long a round waits for a proposal of one draft worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

NUM_SAMPLES = 64
ENOUGH_SAMPLES = 8
FLOOR_S = 0.05
"""A bound below this would measure the event loop, not the draft."""
PATIENCE = 8
"""Waits in vain, with no answer between them, after which nobody waits until one comes."""


class Latency:
    """The bound of a wait: a cap; twice the moving p95 once that is known; nothing for a silent draft.

    A draft stops where it is no longer confident, so its answers differ in depth many times over. What is
    remembered is the time per drafted token, each of which is one pass of the draft: else a run of shallow
    proposals would cut off the deep ones, which save the most.
    """

    def __init__(self, cap_s: float, silent: Callable[[], None] = lambda: None) -> None:
        """`silent` is called when nobody waits any more."""
        self._cap_s = cap_s
        self._silent = silent
        # Seconds per drafted token.
        self._samples: deque[float] = deque(maxlen=NUM_SAMPLES)
        self._num_vain = 0

    def bound_s(self, k: int) -> float:
        """Seconds that the next round waits at most for `k` tokens."""
        if self._num_vain >= PATIENCE:
            return 0.0
        if len(self._samples) < ENOUGH_SAMPLES:
            return self._cap_s
        ranked = sorted(self._samples)
        return min(self._cap_s, max(FLOOR_S, 2 * k * ranked[int(0.95 * (len(ranked) - 1))]))

    def answered(self, seconds: float, depth: int) -> None:
        """An answer of `depth` tokens per candidate came, in time or late.

        A late one counts in full, else the p95 could never grow.
        """
        self._samples.append(seconds / max(1, depth))
        self._num_vain = 0

    def waited_in_vain(self) -> None:
        """A wait reached its bound."""
        self._num_vain += 1
        if self._num_vain >= PATIENCE:
            self._silent()

    def try_again(self) -> None:
        """The worker speaks, if not for a session yet: it is waited for once more."""
        self._num_vain = min(self._num_vain, PATIENCE - 1)
