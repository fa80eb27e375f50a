"""Schedulers that are asked again and again what they do."""

from __future__ import annotations

import enum
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import grpc
from rich.console import RenderableType
from rich.text import Text

from outrider.cli.frame import frame, said
from outrider.rpc.channel import open_channel
from outrider.rpc.errors import error_from_rpc
from outrider.v1 import scheduler_pb2_grpc
from outrider.wire import scheduler as wire
from outrider.wire.state import SchedulerState

PERIOD_S = 10.0
"""Figures are over so long: the rounds of one second say little."""
TIMEOUT_S = 3.0


class Watched:
    """One scheduler, its latest state and one of some seconds ago; it is reached again when it is back.

    Args:
        address: host:port.
        clock: seconds.
    """

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.address = address
        self._clock = clock
        self._channel = open_channel(address)
        self._stub: Any = scheduler_pb2_grpc.SchedulerServiceStub(self._channel)
        self._states: deque[tuple[float, SchedulerState]] = deque()
        self.problem = "not asked yet"

    @property
    def state(self) -> SchedulerState | None:
        """The latest; None while it is not reached."""
        return self._states[-1][1] if self._states else None

    async def poll(self) -> None:
        """Ask once."""
        try:
            response = await self._stub.Describe(wire.describe_request(), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            # What comes after it may be another process, with counters of its own.
            self._states.clear()
            self.problem = said(_told(error))
            return
        now = self._clock()
        self.problem = ""
        self._states.append((now, wire.decode_describe(response)))
        while now - self._states[0][0] > PERIOD_S and len(self._states) > 2:
            self._states.popleft()

    def view(self) -> RenderableType:
        """As a person sees it."""
        if not self._states:
            text = Text(f"scheduler {self.address}", "bold")
            return text.append(f" not reached: {self.problem}", "not bold red")
        (first_s, first), (last_s, last) = self._states[0], self._states[-1]
        before = first if len(self._states) > 1 else None
        return frame(before, last, last_s - first_s, address=self.address)

    async def close(self) -> None:
        """Let go of the connection."""
        await self._channel.close()


def as_json(watched: Sequence[Watched]) -> str:
    """All of them as one line."""
    schedulers = [
        {
            "address": each.address,
            "problem": each.problem,
            "state": asdict(each.state) if each.state is not None else None,
        }
        for each in watched
    ]
    document = {"unix_ms": round(1000 * time.time()), "schedulers": schedulers}
    return json.dumps(document, default=_plain, ensure_ascii=False)


def _plain(value: object) -> str:
    match value:
        case enum.Enum():
            return value.name.lower()
        case bytes():
            return value.hex()
        case _:
            raise TypeError(f"{type(value).__name__} has no form in JSON")


def _told(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return "what answers there is no scheduler; give the address of one, as port 50051"
    return " ".join(error_from_rpc(error).message.split())
