"""The schedulers that a gateway knows, and who takes the next generation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from outrider.rpc.channel import open_channel
from outrider.v1 import scheduler_pb2_grpc

LEFT_ALONE_S = 2.0
"""A scheduler that was lost goes to the end of the line for so long."""


@dataclass(slots=True)
class Scheduler:
    """One of them."""

    address: str
    channel: grpc.aio.Channel
    stub: Any
    # Until then it is asked last.
    not_before_s: float = 0.0


class Schedulers:
    """Takes turns among those that are not known to be lost.

    Args:
        addresses: host:port each, at least one.
        clock: seconds.
    """

    def __init__(self, addresses: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = [_opened(address) for address in addresses]
        self._turn = 0

    def in_turn(self) -> Iterator[Scheduler]:
        """All of them in the order in which to try; the next call begins with another one."""
        now = self._clock()
        turned = self._all[self._turn :] + self._all[: self._turn]
        self._turn = (self._turn + 1) % len(self._all)
        yield from sorted(turned, key=lambda each: each.not_before_s > now)

    def lost(self, scheduler: Scheduler) -> None:
        """It did not answer."""
        scheduler.not_before_s = self._clock() + LEFT_ALONE_S

    async def close(self) -> None:
        """Let go of all connections."""
        for each in self._all:
            await each.channel.close()


def _opened(address: str) -> Scheduler:
    channel = open_channel(address)
    return Scheduler(address, channel, scheduler_pb2_grpc.SchedulerServiceStub(channel))
