"""What processes say of themselves: unary calls by address."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from outrider.rpc.channel import open_channel
from outrider.v1 import scheduler_pb2_grpc, worker_pb2_grpc
from outrider.wire import worker_calls
from outrider.wire.scheduler import decode_describe, decode_watch, describe_request, watch_request
from outrider.wire.state import SchedulerState, WorkerStatus

if TYPE_CHECKING:
    from outrider.wire.worker import ModelInfo, WorkerLoad

TIMEOUT_S = 30.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def model_info(address: str) -> ModelInfo:
    """What a worker has loaded."""
    async with open_channel(address) as channel:
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        return worker_calls.decode_model_info(await stub.GetModelInfo(worker_calls.model_info_request()))


async def load_of(address: str) -> WorkerLoad:
    """What a worker is doing."""
    async with open_channel(address) as channel:
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        return worker_calls.decode_load(await stub.GetLoad(worker_calls.load_request()))


async def state_of(scheduler: str) -> SchedulerState:
    """What a scheduler knows of its workers."""
    async with open_channel(scheduler) as channel:
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        return decode_describe(await stub.Describe(describe_request()))


async def until_drafts_ready(scheduler: str) -> None:
    """Wait until the scheduler can use all of its drafts."""
    async with asyncio.timeout(TIMEOUT_S):
        async with open_channel(scheduler) as channel:
            async for message in scheduler_pb2_grpc.SchedulerServiceStub(channel).Watch(watch_request()):
                if all(draft.status is WorkerStatus.READY for draft in decode_watch(message).drafts):
                    return
