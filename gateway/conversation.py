"""One generation's conversation with a scheduler: it survives the loss of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import grpc

from gateway.schedulers import Scheduler, Schedulers
from outrider.rpc.errors import (
    OutriderError,
    ProtocolViolation,
    ResourceExhausted,
    Unavailable,
    error_from_rpc,
)
from outrider.sampling.acceptance import FinishReason
from outrider.telemetry import get_logger
from outrider.wire import scheduler as wire
from outrider.wire.generation import Counters
from outrider.wire.tensors import MalformedMessage

log = get_logger(__name__)

REOPEN_S = 20.0
"""A generation whose scheduler is lost looks so long for another, or for the same one to come back."""
PAUSE_S = 0.2
FINISH_TIMEOUT_S = 5.0
RETRY_AFTER_S = 1.0
"""When a lost scheduler is worth another try, as clients are told."""


class _Lost(Exception):
    """The scheduler is gone; what it did is what it delivered."""


class Conversation:
    """The events of one generation, as one scheduler would have given them.

    What was delivered goes to the next scheduler as output so far: seed and positions make the rest of it the
    same. A lost scheduler's counters are lost with it; those of the last one are told.

    Args:
        schedulers: to choose from.
        asked: the generation.
        metadata: of each call; the trace context.
        end_ids: ids that end the answer.
    """

    def __init__(
        self,
        schedulers: Schedulers,
        asked: wire.GenerateRequest,
        metadata: tuple[tuple[str, str], ...],
        end_ids: frozenset[int],
    ) -> None:
        self._schedulers = schedulers
        self._asked = asked
        self._metadata = metadata
        self._end_ids = end_ids
        self._delivered: list[int] = []
        self._started: wire.Started | None = None
        self._scheduler: Scheduler | None = None
        self._num_reopened = 0
        # Another replica, of other bits, went on; later schedulers do not know.
        self._has_changed_replica = False
        # Set when the session was shortened: nothing is worth reopening it for.
        self._is_shortened = False

    async def events(self) -> AsyncGenerator[wire.GenerateEvent, None]:
        """Started once, Committed, then Finished or a Failure; the call is cancelled when this is closed.

        Raises OutriderError.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REOPEN_S
        while True:
            problem: OutriderError | None = None
            for scheduler in self._schedulers.in_turn():
                self._scheduler = scheduler
                num_before = len(self._delivered)
                try:
                    # Closed with this one: a caller that leaves ends the call at once.
                    async with aclosing(self._from(scheduler)) as events:
                        async for event in events:
                            yield event
                except _Lost as error:
                    self._schedulers.lost(scheduler)
                    problem = Unavailable(
                        f"the scheduler at {scheduler.address} is not reached ({error}); try again",
                        retry_after_s=RETRY_AFTER_S,
                    )
                    if len(self._delivered) > num_before:
                        deadline = loop.time() + REOPEN_S
                except (Unavailable, ResourceExhausted) as error:
                    # It is there, and can not take it; another one may.
                    if self._started is None and isinstance(error, ResourceExhausted):
                        raise  # the caller can wait as well, and should: all have the same workers
                    problem = error
                else:
                    return
                if (finished := self._over()) is not None:
                    yield finished
                    return
            if problem is None:
                raise ProtocolViolation("there is no scheduler to ask")
            # Before anything was delivered the caller may as well try again; afterwards nobody else can.
            if self._started is None or loop.time() >= deadline:
                raise problem
            await asyncio.sleep(PAUSE_S)

    async def finish(self, num_tokens: int) -> wire.Finished:
        """Shorten the session to so many output tokens, here and on both workers; how it ended there."""
        self._is_shortened = True
        if self._scheduler is None or self._started is None:
            raise ProtocolViolation("a generation was shortened before it had started")
        request = wire.FinishRequest(self._started.session, num_tokens, FinishReason.STOP_STRING)
        try:
            response = await self._scheduler.stub.Finish(
                wire.encode_finish(request), timeout=FINISH_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            if _is_lost(error) or error.code() is grpc.StatusCode.NOT_FOUND:
                # It is gone, or back and knows of nothing; the answer is whole all the same.
                return self._ended(FinishReason.STOP_STRING)
            raise error_from_rpc(error) from error
        return self._counted(wire.decode_finish_response(response))

    async def _from(self, scheduler: Scheduler) -> AsyncGenerator[wire.GenerateEvent, None]:
        """What one scheduler gives. Raises _Lost."""
        call = scheduler.stub.Generate(wire.encode_generate(self._rest()), metadata=self._metadata)
        try:
            async for message in call:
                match event := wire.decode_event(message):
                    case wire.Started():
                        is_first = self._started is None
                        self._reopened(event)
                        if is_first:
                            yield event
                    case wire.Committed():
                        self._delivered.extend(event.tokens)
                        yield event
                    case wire.Finished():
                        yield self._counted(event)
                        return
                    case _:
                        yield event
                        return
        except grpc.aio.AioRpcError as error:
            if _is_lost(error):
                raise _Lost(str(error.details())) from error
            raise error_from_rpc(error) from error
        except MalformedMessage as error:
            # The scheduler's fault, and not that of the caller, whom a MalformedMessage would blame.
            raise ProtocolViolation(f"the scheduler's answer can not be read: {error}") from error
        finally:
            call.cancel()
        raise _Lost("it ended the stream before the answer")

    def _rest(self) -> wire.GenerateRequest:
        if self._started is None:
            return self._asked
        return replace(
            self._asked,
            output_so_far=(*self._asked.output_so_far, *self._delivered),
            numerics_id=self._started.numerics_id,
        )

    def _reopened(self, started: wire.Started) -> None:
        if self._started is not None:
            self._num_reopened += 1
            self._has_changed_replica |= started.numerics_id != self._started.numerics_id
            log.info(
                "generation_reopened",
                scheduler=self._scheduler.address if self._scheduler else "",
                num_delivered=len(self._delivered),
            )
        self._started = started

    def _over(self) -> wire.Finished | None:
        """How it ended, when all but the last event had come."""
        if self._is_shortened:
            return self._ended(FinishReason.STOP_STRING)
        sampling, num_output = self._asked.sampling, len(self._asked.output_so_far) + len(self._delivered)
        if self._delivered and self._delivered[-1] in self._end_ids and num_output > sampling.min_tokens:
            return self._ended(FinishReason.STOP)
        return self._ended(FinishReason.LENGTH) if num_output >= sampling.max_tokens else None

    def _ended(self, reason: FinishReason) -> wire.Finished:
        numerics_id = self._started.numerics_id if self._started else ""
        return self._counted(wire.Finished(reason, Counters(), numerics_id))

    def _counted(self, finished: wire.Finished) -> wire.Finished:
        counters = finished.counters
        return replace(
            finished,
            counters=replace(counters, reopens=counters.reopens + self._num_reopened),
            changed_replica=finished.changed_replica or self._has_changed_replica,
        )


def _is_lost(error: grpc.aio.AioRpcError) -> bool:
    """Of the connection; what a scheduler refuses for a while says when to try again."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and error_from_rpc(error).retry_after_s is None
