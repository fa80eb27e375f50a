"""The links to all workers of one role; they come and go with what their names stand for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from outrider.telemetry import get_logger
from outrider.wire.state import WorkerState, WorkerStatus
from services.scheduler.discovery import Discovery, Resolver
from services.scheduler.link import StreamLink

log = get_logger(__name__)

L = TypeVar("L", bound=StreamLink[Any, Any])


class Pool(Generic[L]):
    """Joins what is found, and lets go of what has vanished once its stream is down.

    As long as the stream is up a worker is of use, whatever its name says: it tells when it is about to end,
    and the name service may know late or in part.

    Args:
        entries: host:port or dns:NAME:PORT each.
        connect: makes the link to an address.
        resolve: looks a name up.
        changed: called when a worker has joined or left.
        gone: called with a link that was let go of.
    """

    def __init__(
        self,
        entries: Sequence[str],
        connect: Callable[[str], L],
        *,
        resolve: Resolver,
        changed: Callable[[], None],
        gone: Callable[[L], None] = lambda _: None,
    ) -> None:
        self._connect = connect
        self._changed = changed
        self._gone = gone
        self._discovery = Discovery(entries, self._found, resolve)
        # In the order in which they joined.
        self._links: dict[str, L] = {
            each: connect(each) for each in entries if each in self._discovery.addresses
        }
        self._running: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None

    @property
    def links(self) -> list[L]:
        """All of the moment."""
        return list(self._links.values())

    @property
    def ready(self) -> list[L]:
        """Those that take sessions."""
        return [link for link in self._links.values() if link.ready]

    @property
    def states(self) -> tuple[WorkerState, ...]:
        """For `Describe`: the workers, and the names that stand for none."""
        missing = [
            WorkerState(name, WorkerStatus.UNREACHABLE, reason)
            for name, reason in self._discovery.missing.items()
        ]
        return (*(link.state for link in self._links.values()), *missing)

    def start(self) -> None:
        """Connect, and follow the names."""
        self._running = {address: asyncio.create_task(link.run()) for address, link in self._links.items()}
        self._following = asyncio.create_task(self._discovery.run())

    async def stop(self, flush_s: float) -> None:
        """End all links; what was said gets so long to be written."""
        tasks = [*self._running.values(), *self._leaving]
        if self._following is not None:
            self._following.cancel()
            tasks.append(self._following)
        await asyncio.gather(*(link.flush(flush_s) for link in self._links.values()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _found(self, addresses: frozenset[str]) -> None:
        joined = sorted(addresses - self._links.keys())
        for address in joined:
            log.info("worker_found", address=address)
            link = self._links[address] = self._connect(address)
            self._running[address] = asyncio.create_task(link.run())
        vanished = [
            address
            for address, link in self._links.items()
            if address not in addresses and not (link.ready or link.draining)
        ]
        for address in vanished:
            log.info("worker_vanished", address=address)
            leaving = self._running.pop(address)
            leaving.cancel()
            # The loop alone would not keep it until its channel is closed.
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            self._gone(self._links.pop(address))
        if joined or vanished:
            self._changed()
