"""Which workers there are: addresses as they were given, and those that a DNS name has at the moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence

from outrider.rpc.addresses import DNS_PREFIX
from outrider.telemetry import get_logger

log = get_logger(__name__)

LOOK_UP_EVERY_S = 5.0

Resolver = Callable[[str, int], Awaitable[Collection[str]]]
"""All addresses, host:port, that a name stands for; raises OSError."""

_NO_RECORDS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


async def resolve(name: str, port: int) -> frozenset[str]:
    """Every A and AAAA record of a name as host:port; none when there is no such name.

    Raises OSError when the name service does not say.
    """
    loop = asyncio.get_running_loop()
    try:
        records = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NO_RECORDS:
            return frozenset()
        raise
    except UnicodeError as error:  # such as a label of more than 63 characters
        raise OSError(f"no name: {error}") from error
    return frozenset(_written(record[4][0], port) for record in records)


class Discovery:
    """Follows the names among `entries`, each of which is host:port or dns:NAME:PORT.

    Args:
        entries: as in the settings.
        found: called with all addresses of the moment after each look at a name.
        resolve: looks a name up.
    """

    def __init__(
        self,
        entries: Sequence[str],
        found: Callable[[frozenset[str]], None],
        resolve: Resolver = resolve,
    ) -> None:
        self._found = found
        self._resolve = resolve
        self._fixed = frozenset(each for each in entries if not each.startswith(DNS_PREFIX))
        # What each name last stood for.
        self._named: dict[str, frozenset[str]] = {
            each: frozenset() for each in entries if each.startswith(DNS_PREFIX)
        }
        self.missing: dict[str, str] = dict.fromkeys(self._named, "not looked up yet")
        """Names that stand for no address, and why."""

    @property
    def addresses(self) -> frozenset[str]:
        """All of the moment."""
        return self._fixed.union(*self._named.values())

    async def run(self) -> None:
        """Look again and again, until cancelled; returns where there is no name."""
        async with asyncio.TaskGroup() as group:
            # Each on its own: one that takes long holds no other up.
            for entry in self._named:
                group.create_task(self._follow(entry))

    async def _follow(self, entry: str) -> None:
        name, _, port = entry.removeprefix(DNS_PREFIX).rpartition(":")
        while True:
            problem = ""
            try:
                self._named[entry] = frozenset(await self._resolve(name.strip("[]"), int(port)))
            except OSError as error:
                # The name service is in trouble, which says nothing of the workers: they stay.
                problem = error.strerror or str(error)
            self._note(entry, problem)
            self._found(self.addresses)
            await asyncio.sleep(LOOK_UP_EVERY_S)

    def _note(self, entry: str, problem: str) -> None:
        before = self.missing.pop(entry, None)
        if self._named[entry]:
            if problem and before is None:
                log.warning("name_not_looked_up", name=entry, problem=problem)
            return
        self.missing[entry] = f"no address: {problem}" if problem else "the name has no address"
        if before != self.missing[entry]:
            log.warning("name_without_address", name=entry, problem=problem)


def _written(host: str | int, port: int) -> str:
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
