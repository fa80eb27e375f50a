"""What a link knows of its worker beside its connection: the model, the load, whether it is of use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from outrider.rpc.errors import Internal, NonFiniteLogits
from outrider.telemetry import get_logger
from outrider.v1 import worker_pb2_grpc
from outrider.wire.worker import ModelInfo, SessionError, WorkerLoad
from outrider.wire.worker_calls import decode_model_info, load_request, model_info_request
from services.scheduler.health import PROBE_TIMEOUT_S, Health
from services.scheduler.latency import Latency
from services.scheduler.placement import Load, num_sessions
from services.scheduler.ports import PeerLost

log = get_logger(__name__)

INFO_TIMEOUT_S = 5.0
WORKER_FAULTS = (Internal.reason, NonFiniteLogits.reason)
"""What a session is failed with that did nothing wrong."""


class Acquaintance:
    """One worker as the scheduler has come to know it.

    Args:
        address: host:port.
        channel: to it; the link's.
        wait_s: the longest wait for an answer, where one goes on without.
        changed: called when there is something new to know.
        unlike: called when it serves a model of other ids, and has to be compared anew.
    """

    def __init__(
        self,
        address: str,
        channel: grpc.aio.Channel,
        *,
        wait_s: float,
        changed: Callable[[], None],
        unlike: Callable[[], None],
    ) -> None:
        self._address = address
        self._calls = worker_pb2_grpc.WorkerServiceStub(channel)
        self._changed = changed
        self._unlike = unlike
        self.health = Health(self._probe, self._health_changed)
        self.latency = Latency(wait_s, lambda: self.health.leave_out("it does not answer in time"))
        self.info: ModelInfo | None = None
        self.load = WorkerLoad()
        # Sessions of ours there when it told that load.
        self._own_then = 0
        self._looking: asyncio.Task[None] | None = None

    @property
    def known(self) -> ModelInfo:
        """What it has loaded; raises PeerLost before it has said so."""
        if self.info is None:
            raise PeerLost(self._address)
        return self.info

    @property
    def left_out(self) -> str:
        """Why it gets no new sessions though it could be reached; empty: it does."""
        return f"left out for a while: {self.health.reason}" if self.health.left_out else ""

    def placement(self, own: int) -> Load:
        """What speaks against it when a session looks for a worker; `own`: sessions of ours there."""
        on_it = num_sessions(own, self._own_then, self.load.num_sessions)
        return Load(self.health.left_out, on_it, self.load.num_waiting)

    def told(self, load: WorkerLoad, own: int) -> None:
        """It has told its load while there were so many sessions of ours."""
        self.load, self._own_then = load, own

    def answered(self, model_version: str) -> None:
        """It has answered a round, with this load of its model; empty: it does not say."""
        self.health.answered()
        if model_version not in ("", self.known.model_version) and not self._is_looking:
            self._looking = asyncio.create_task(self._look_again())

    def failed(self, error: SessionError) -> None:
        """It has failed a session."""
        if error.failure.reason in WORKER_FAULTS:
            self.health.failed(error.failure.message)

    def close(self) -> None:
        """Nothing more is asked of it."""
        self.health.close()
        if self._looking is not None:
            self._looking.cancel()

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and not self._looking.done()

    async def _look_again(self) -> None:
        """It has loaded another model; the stream has survived that, since its ids are the same."""
        try:
            told: Any = await self._calls.GetModelInfo(model_info_request(), timeout=INFO_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return  # the next answer leads here again
        info = decode_model_info(told)
        if info.tokenizer_fingerprint != self.known.tokenizer_fingerprint:
            self._unlike()
        elif info != self.info:
            log.info("worker_reloaded", address=self._address, model=info.model)
            self.info = info
            self._changed()

    async def _probe(self) -> None:
        await self._calls.GetLoad(load_request(), timeout=PROBE_TIMEOUT_S)

    def _health_changed(self) -> None:
        if self.health.left_out:
            log.warning("worker_left_out", address=self._address, reason=self.health.reason)
        else:
            log.info("worker_taken_back", address=self._address)
            self.latency.try_again()
        self._changed()
