"""Whether two workers share their token ids: by comparing tokenizers, not sizes."""

from __future__ import annotations

import asyncio
from typing import Protocol

import grpc

from outrider.rpc.errors import error_from_rpc
from outrider.text.vocabulary import InvalidTokenizer, first_difference, vocabulary
from outrider.v1 import worker_pb2_grpc
from outrider.wire.worker import ModelInfo, tokenizer_from_pb
from outrider.wire.worker_calls import tokenizer_request

TIMEOUT_S = 30.0


class Reachable(Protocol):
    """A worker that can be asked for its tokenizer."""

    @property
    def channel(self) -> grpc.aio.Channel: ...
    @property
    def info(self) -> ModelInfo: ...


class Tokenizers:
    """Compares workers and remembers what it found, by fingerprint."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], str] = {}

    async def why_unlike(self, target: Reachable, other: Reachable) -> str:
        """Why the two can not share ids: both sizes and the first id that differs; "" when they can.

        Vocabularies that are padded to different sizes fit when the ids that both have agree.
        """
        pair = (target.info.tokenizer_fingerprint, other.info.tokenizer_fingerprint)
        if pair[0] == pair[1]:
            return ""
        if pair not in self._found:
            try:
                left, right = await asyncio.gather(_vocabulary(target), _vocabulary(other))
            except grpc.aio.AioRpcError as error:
                return (
                    f"its tokenizer is another one, and can not be compared: {error_from_rpc(error).message}"
                )
            except InvalidTokenizer as error:
                return f"its tokenizer is another one, and can not be compared: {error}"
            self._found[pair] = _described(target.info, left, other.info, right)
        return self._found[pair]


def _described(target: ModelInfo, left: dict[int, str], other: ModelInfo, right: dict[int, str]) -> str:
    difference = first_difference(left, right)
    if difference is None:
        return ""
    return (
        f"tokenizers differ: {target.model} has {len(left)} ids and {other.model} {len(right)}, and id "
        f"{difference.id} is {difference.left!r} in the first and {difference.right!r} in the second"
    )


async def _vocabulary(worker: Reachable) -> dict[int, str]:
    stub = worker_pb2_grpc.WorkerServiceStub(worker.channel)
    files = tokenizer_from_pb(await stub.GetTokenizer(tokenizer_request(), timeout=TIMEOUT_S))
    return await asyncio.to_thread(vocabulary, files.tokenizer_json)
