"""Requests that wait because no validator has room for them yet."""

from __future__ import annotations

import asyncio
import random

from outrider.rpc.errors import OutriderError

MAX_WAITING = 256
"""More than these are refused at once: they would hardly be served before they give up."""
RETRY_AFTER_S = 0.1
"""Pause after a refusal that names none."""


class WaitingRoom:
    """Bounds how many wait; the time is bounded by each of them."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self.max_waiting = max_waiting
        self.num_waiting = 0

    async def wait(self, refusal: OutriderError, longest_s: float) -> None:
        """Return when it is worth another try. Raises the refusal when the room is full or time is up."""
        if self.num_waiting >= self.max_waiting or longest_s <= 0:
            raise refusal
        self.num_waiting += 1
        try:
            pause_s = refusal.retry_after_s or RETRY_AFTER_S
            # Those that were refused together need not come back together.
            await asyncio.sleep(min(pause_s * random.uniform(0.5, 1), longest_s))  # noqa: S311  # no secret
        finally:
            self.num_waiting -= 1
