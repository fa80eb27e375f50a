"""One connection to a gateway."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Self

import grpc

from outrider.client.completion import Completion, collect
from outrider.client.request import encode
from outrider.rpc.channel import open_channel
from outrider.rpc.errors import OutriderError, ProtocolViolation, Unavailable, error_from_rpc, from_failure
from outrider.sampling.parameters import SamplingParameters
from outrider.v1 import inference_pb2_grpc
from outrider.wire import inference
from outrider.wire.generation import Failure, Speculation
from outrider.wire.inference import Delta, Final, GenerateRequest, Prompt
from outrider.wire.tensors import MalformedMessage
from outrider.wire.worker import ModelInfo

DEFAULT_ADDRESS = "127.0.0.1:50050"
LIST_TIMEOUT_S = 10.0
PURGE_TIMEOUT_S = 60.0


class OutriderClient:
    """Generates text through a gateway.

    ```python
    async with OutriderClient() as client:
        async for event in client.generate("Once upon a time"):
            if isinstance(event, Delta):
                print(event.text, end="", flush=True)
    ```

    Use it on one event loop, from as many tasks as you like. Every method raises OutriderError (see
    `outrider.rpc.errors` for the tree).
    """

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        """`address` is host:port. Nothing is connected before the first call."""
        self.address = address
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all calls and close the connection; a later call opens a new one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def generate(
        self,
        prompt: Prompt,
        *,
        model: str = "",
        sampling: SamplingParameters = SamplingParameters(),  # noqa: B008  # frozen
        seed: int | None = None,
        stop: Sequence[str] = (),
        speculation: Speculation = Speculation(),  # noqa: B008  # frozen
        choice: int = 0,
        token_by_token: bool = False,
        cache_salt: str = "",
        store: bool = True,
        workload: str = "",
        timeout_s: float | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> AsyncGenerator[Delta | Final, None]:
        """Give the answer's deltas as they are committed, then one `Final`.

        Leaving the loop early, closing the iterator or cancelling the task ends the session on all workers.

        Args:
            prompt: a string (used as it stands), a `Chat` (goes through the model's template) or `PromptIds`.
            model: the one to ask for; empty takes the one that is served.
            sampling: how tokens are chosen.
            seed: equal seeds give equal answers; None draws one, and `Final` tells it.
            stop: up to 16 strings; the text ends before the first that appears.
            speculation: how much to speculate, which changes speed and never the answer; bounds of k, and
                times to aim at.
            choice: index among several answers to one request; each draws other noise.
            token_by_token: one delta per token, so that its size tells nothing of what was drafted, in place
                of one per round.
            cache_salt: what is kept of the prompt is shared with requests of the same salt only.
            store: whether the shared store may be read and written for it.
            workload: a label of the kind of text, such as code; empty: guessed from the prompt.
            timeout_s: longest time for the whole answer.
            metadata: sent along, such as a `traceparent` to continue.

        """
        request = GenerateRequest(
            prompt,
            model,
            sampling,
            seed,
            tuple(stop),
            speculation,
            choice,
            token_by_token,
            cache_salt,
            store,
            workload,
        )
        call = self._stub().Generate(encode(request), timeout=timeout_s, metadata=tuple(metadata))
        try:
            async for message in call:
                event = inference.decode_event(message)
                if isinstance(event, Failure):
                    raise from_failure(event)
                yield event
                if isinstance(event, Final):
                    return
        except grpc.aio.AioRpcError as error:
            raise self._explain(error) from error
        except MalformedMessage as error:
            raise ProtocolViolation(f"the answer of {self.address} can not be read: {error}") from error
        finally:
            call.cancel()
        raise Unavailable(f"the gateway at {self.address} ended the answer early; try again")

    async def complete(self, prompt: Prompt, **options: Any) -> Completion:
        """Give the whole answer at once; takes what `generate` takes."""
        async with aclosing(self.generate(prompt, **options)) as events:
            return await collect(events)

    async def list_models(self) -> tuple[ModelInfo, ...]:
        """The models that can be asked for."""
        try:
            response = await self._stub().ListModels(inference.list_models_request(), timeout=LIST_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise self._explain(error) from error
        return inference.decode_models(response)

    async def purge(self, *, metadata: Sequence[tuple[str, str]] = ()) -> int:
        """Forget what the shared store holds of the caller's tenant; how many entries there were.

        `metadata` is sent along, such as the key in which a gateway is told the tenant.
        """
        request = inference.purge_request()
        try:
            response = await self._stub().Purge(request, timeout=PURGE_TIMEOUT_S, metadata=tuple(metadata))
        except grpc.aio.AioRpcError as error:
            raise self._explain(error) from error
        return inference.decode_purged(response)

    def _stub(self) -> Any:
        if self._channel is None:
            self._channel = open_channel(self.address)
        return inference_pb2_grpc.InferenceServiceStub(self._channel)

    def _explain(self, error: grpc.aio.AioRpcError) -> OutriderError:
        known = error_from_rpc(error)
        if error.code() is grpc.StatusCode.UNAVAILABLE and known.retry_after_s is None:
            # gRPC's own words: no process has answered.
            return Unavailable(f"no gateway answers at {self.address} ({known.message})")
        return known
