"""Waiting for what another process or task does, without asserting how long it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object]) -> None:
    """Return once it holds; the test's own time-out ends a wait in vain."""
    while not holds():  # noqa: ASYNC110  # what is waited for knows nothing of tests
        await asyncio.sleep(0.002)
