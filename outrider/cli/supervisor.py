"""All children together: started side by side, restarted when they die, stopped in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from outrider.cli.child import Child, State

STOP_GRACE_S = 8.0
"""Above the children's own grace of 5 s."""
FIRST_BACKOFF_S = 0.5
LAST_BACKOFF_S = 10.0
STEADY_S = 30.0
"""A child that was ready this long begins again with the first backoff."""


class StartFailed(Exception):
    """A child ended before it was ready."""

    def __init__(self, child: Child) -> None:
        super().__init__(f"{child.plan.name} {child.ending} before it was ready")
        self.child = child


class Supervisor:
    """Owns the children, in the order of the plan: workers, scheduler, gateway."""

    def __init__(self, children: Sequence[Child], *, restart: bool, say: Callable[[str], None]) -> None:
        self.children = tuple(children)
        self._restart = restart
        self._say = say
        self._watching: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all and return when all are ready. Raises StartFailed; the others run on then."""
        for child in self.children:
            await child.start()
        waits = {asyncio.ensure_future(child.wait_ready()): child for child in self.children}
        try:
            for wait in asyncio.as_completed(waits):
                if not await wait:
                    raise StartFailed(next(child for child in self.children if child.state is State.ENDED))
        finally:
            for each in waits:
                each.cancel()

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Report children that end, and start them again if wanted. Returns when none is left."""
        async with asyncio.TaskGroup() as group:
            for child in self.children:
                group.create_task(self._keep(child, on_change))

    async def stop(self) -> None:
        """Stop all: who is asked before who answers."""
        workers = [child for child in self.children if child.plan.module.startswith("services.")]
        scheduler = [child for child in workers if child.plan.module == "services.scheduler"]
        gateway = [child for child in self.children if child not in workers]
        for stage in (gateway, scheduler, [child for child in workers if child not in scheduler]):
            await asyncio.gather(*(child.stop(STOP_GRACE_S) for child in stage))

    def kill(self) -> None:
        """End all at once."""
        for child in self.children:
            child.kill()

    async def _keep(self, child: Child, on_change: Callable[[], None]) -> None:
        backoff_s = FIRST_BACKOFF_S
        while True:
            await child.wait_end()
            if child.steady_s > STEADY_S:
                backoff_s = FIRST_BACKOFF_S
            then = f"; it is started again in {backoff_s:g} s" if self._restart else "; the others go on"
            self._say(f"{child.plan.name} {child.ending} (log: {child.log}){then}")
            on_change()
            if not self._restart:
                return
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, LAST_BACKOFF_S)
            await child.start()
            if await child.wait_ready():
                self._say(f"{child.plan.name} is ready again (pid {child.pid})")
                on_change()
