"""The unary calls of both workers: decode, ask the engine, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.v1 import worker_pb2_grpc
from outrider.wire.worker import tokenizer_to_pb
from outrider.wire.worker_calls import (
    decode_reload_request,
    encode_load,
    encode_model_info,
    encode_reload,
)

if TYPE_CHECKING:
    from outrider.worker.engine import Engine
    from outrider.worker.reloading import Reloading

SERVICE = "outrider.v1.WorkerService"


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """What is loaded, what is being done, and loading something else."""

    def __init__(self, engine: Engine, reloading: Reloading) -> None:
        self._engine = engine
        self._reloading = reloading

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        """What is loaded."""
        return encode_model_info(self._engine.info)

    async def GetTokenizer(self, request: Any, context: Any) -> Any:
        """Tokenizer and chat template."""
        return tokenizer_to_pb(self._engine.tokenizer)

    async def GetLoad(self, request: Any, context: Any) -> Any:
        """What is being done right now."""
        return encode_load(self._engine.load)

    async def Reload(self, request: Any, context: Any) -> Any:
        """Load a model and serve it."""
        return encode_reload(await self._reloading.reload(decode_reload_request(request)))
