"""Keeping track of the served model: the scheduler knows the validators, and they have the tokenizer."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from gateway.schedulers import Schedulers
from gateway.served import ServedModel, identity_of
from outrider.rpc.channel import open_channel
from outrider.rpc.errors import error_from_rpc
from outrider.telemetry import get_logger
from outrider.text.vocabulary import InvalidTokenizer
from outrider.v1 import worker_pb2_grpc
from outrider.wire.scheduler import decode_describe, describe_request
from outrider.wire.state import WorkerStatus
from outrider.wire.tensors import MalformedMessage
from outrider.wire.worker import ModelInfo, tokenizer_from_pb
from outrider.wire.worker_calls import tokenizer_request

log = get_logger(__name__)

SEARCH_INTERVAL_S = 0.1
"""While there is no model yet, which is the time that a start waits."""
CHECK_INTERVAL_S = 1.0
"""While there is one: a reload of the target is seen this much later."""
DESCRIBE_TIMEOUT_S = 5.0
FETCH_TIMEOUT_S = 30.0


class ModelWatch:
    """Holds the present model; fetches its tokenizer from a ready validator, and again when it changes.

    A model stays present while no validator is ready: the scheduler says whether it can be served then.
    """

    def __init__(self, schedulers: Schedulers) -> None:
        self._schedulers = schedulers
        self._served: ServedModel | None = None
        self._known = asyncio.Event()
        self._problem = ""

    @property
    def present(self) -> ServedModel:
        """The model of new requests; there is one once `first` has returned."""
        if self._served is None:
            raise RuntimeError("the served model was asked for before it was known")
        return self._served

    async def first(self) -> ServedModel:
        """Wait until there is a model."""
        await self._known.wait()
        return self.present

    async def run_forever(self) -> None:
        """Look again and again; what goes wrong is logged when it changes, and tried again."""
        while True:
            problem = await self._look()
            if problem and problem != self._problem:
                log.warning("model_not_known", problem=problem)
            self._problem = problem
            await asyncio.sleep(CHECK_INTERVAL_S if self._served else SEARCH_INTERVAL_S)

    async def _look(self) -> str:
        """Take the model over if it is new; returns what is in the way, "" if nothing is."""
        problem, ready = "", []
        for scheduler in self._schedulers.in_turn():
            try:
                described = await scheduler.stub.Describe(
                    describe_request(), timeout=DESCRIBE_TIMEOUT_S, wait_for_ready=True
                )
            except grpc.aio.AioRpcError as error:
                self._schedulers.lost(scheduler)
                problem = f"the scheduler does not answer: {error_from_rpc(error)}"
                continue
            ready = [
                (each.address, each.info)
                for each in decode_describe(described).validators
                if each.status is WorkerStatus.READY and each.info
            ]
            if ready:
                break
            problem = "no validator is ready"
        if not ready:
            return problem
        if self._served and identity_of(self._served.info) in (identity_of(info) for _, info in ready):
            return ""
        for address, info in ready:
            problem = await self._fetch(address, info)
            if not problem:
                break
        return problem

    async def _fetch(self, address: str, info: ModelInfo) -> str:
        """Get the tokenizer from one validator; returns what went wrong, "" if nothing did."""
        channel = open_channel(address)
        try:
            stub: Any = worker_pb2_grpc.WorkerServiceStub(channel)
            files = tokenizer_from_pb(await stub.GetTokenizer(tokenizer_request(), timeout=FETCH_TIMEOUT_S))
            if files.tokenizer_fingerprint != info.tokenizer_fingerprint:
                return f"the validator at {address} has just changed its model"
            self._served = await asyncio.to_thread(ServedModel.load, info, files)
        except grpc.aio.AioRpcError as error:
            return f"the validator at {address} does not give its tokenizer: {error_from_rpc(error)}"
        except (InvalidTokenizer, MalformedMessage) as error:
            return f"the tokenizer of the validator at {address} can not be used: {error}"
        finally:
            await channel.close()
        self._known.set()
        log.info("model_known", model=info.model, validator=address, numerics_id=info.numerics_id)
        return ""
