"""What alerts need of the workers: to see them, and to have a draft loaded again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import grpc

from outrider.rpc.channel import open_channel
from outrider.rpc.errors import NotFound, error_from_rpc
from outrider.v1 import worker_pb2_grpc
from outrider.wire.state import WorkerState, WorkerStatus
from outrider.wire.worker_calls import decode_model_info, model_info_request, reload_request

ASK_S = 5.0
RELOAD_S = 600.0
"""Time that a reload gets: a model of many gigabytes comes from a disk."""


class HasWorkers(Protocol):
    """All workers as they stand; the fleet is one."""

    @property
    def validator_states(self) -> Sequence[WorkerState]: ...
    @property
    def draft_states(self) -> Sequence[WorkerState]: ...


class AlertPort(HasWorkers, Protocol):
    """What alerts see, and what they can do beyond the scheduler."""

    async def reload_draft(self, model_version: str) -> str:
        """Load the draft of this version again; its new version. Sessions go on meanwhile.

        Raises OutriderError.
        """
        ...


class FleetPort:
    """The workers of a fleet, called over channels of their own."""

    def __init__(self, fleet: HasWorkers) -> None:
        self._fleet = fleet

    @property
    def validator_states(self) -> Sequence[WorkerState]:
        return self._fleet.validator_states

    @property
    def draft_states(self) -> Sequence[WorkerState]:
        return self._fleet.draft_states

    async def reload_draft(self, model_version: str) -> str:
        """As in `AlertPort`. Raises NotFound when no draft that is ready has this version."""
        for worker in self.draft_states:
            if worker.status is not WorkerStatus.READY:
                continue
            async with open_channel(worker.address) as channel:
                calls = worker_pb2_grpc.WorkerServiceStub(channel)
                try:
                    # The handshake's answer may be of an earlier load: a stream survives a reload.
                    info = decode_model_info(await calls.GetModelInfo(model_info_request(), timeout=ASK_S))
                    if info.model_version != model_version:
                        continue
                    return decode_model_info(
                        await calls.Reload(reload_request(""), timeout=RELOAD_S)
                    ).model_version
                except grpc.aio.AioRpcError as error:
                    raise error_from_rpc(error) from error
        raise NotFound(f"no draft that is ready has version {model_version}")
