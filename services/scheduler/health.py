"""Whether a worker gets new sessions: one that fails again and again is left alone for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

MAX_FAILURES = 3
"""Failures with no answer between them, after which a worker is left out."""
FIRST_PAUSE_S = 5.0
LAST_PAUSE_S = 60.0
PROBE_TIMEOUT_S = 2.0


class Health:
    """Leaves a worker out when it fails, and takes it back when it answers.

    After a pause it is asked a small question, and the pause doubles until it answers. Then it is on
    probation: the next failure leaves it out again, for twice as long, unless it has answered a session
    before. While it is left out, an answer to a session that it still has ends the pause at once.

    Args:
        probe: returns when the worker has answered, and raises when it can not.
        changed: called when it was left out or taken back.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        probe: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._probe = probe
        self._changed = changed
        self._sleep = sleep
        self._num_failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._returning: asyncio.Task[None] | None = None
        self.reason = ""
        """Why it is left out; empty: it is not."""

    @property
    def left_out(self) -> bool:
        """Whether new sessions should go elsewhere."""
        return bool(self.reason)

    def answered(self) -> None:
        """A session got what it had asked for."""
        self._num_failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._take_back()

    def failed(self, why: str) -> None:
        """A session was failed, by no fault of its own."""
        self._num_failures += 1
        if self._num_failures >= MAX_FAILURES:
            self.leave_out(why)

    def leave_out(self, why: str) -> None:
        """It is known not to be of use now."""
        if self.reason:
            return
        self.reason = why
        self._returning = asyncio.create_task(self._return())
        self._changed()

    def close(self) -> None:
        """The worker is no longer of interest."""
        if self._returning is not None:
            self._returning.cancel()
            self._returning = None

    async def _return(self) -> None:
        while True:
            await self._sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    await self._probe()
            except Exception:  # noqa: BLE001, S112  # whatever it is, the worker did not answer
                continue
            break
        self._num_failures = MAX_FAILURES - 1
        self._returning = None
        self._take_back()

    def _take_back(self) -> None:
        if not self.reason:
            return
        self.reason = ""
        self.close()
        self._changed()
