"""Loading a model again, or another one, while the worker serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from outrider.rpc.errors import FailedPrecondition, InvalidArgument
from outrider.worker.brief_thread import in_brief_thread

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.wire.worker import ModelInfo
    from outrider.worker.engine import Engine

log = structlog.get_logger(__name__)


class Reloading:
    """One reload at a time. The present model serves until the next one is loaded."""

    def __init__(
        self,
        engine: Engine,
        load: Callable[[str], Runtime],
        *,
        model: str,
        drain_first: bool,
        load_errors: tuple[type[Exception], ...],
    ) -> None:
        """Reload into `engine`.

        Args:
            engine: where the model goes.
            load: loads a model by name; blocks, and raises one of `load_errors`.
            model: the name of what is loaded now.
            drain_first: let sessions end before the swap, since they are pinned to the weights.
            load_errors: what `load` raises for a model that can not be served; their text is for the caller.
        """
        self._engine = engine
        self._load = load
        self._model = model
        self._drain_first = drain_first
        self._load_errors = load_errors
        self._busy = asyncio.Lock()

    async def reload(self, model: str) -> ModelInfo:
        """Load `model`, or the present one again when empty, and serve it.

        Raises:
            FailedPrecondition: another reload is under way.
            InvalidArgument: the model can not be loaded; the present one goes on.
        """
        if self._busy.locked():
            raise FailedPrecondition("another reload is under way; wait for it to end")
        async with self._busy:
            wanted = model or self._model
            try:
                if self._drain_first:
                    self._engine.refuse_opens("the worker loads another model")
                    await self._engine.empty()
                runtime = await in_brief_thread(lambda: self._load(wanted))
                info = await self._engine.swap(runtime)
            except self._load_errors as error:
                raise InvalidArgument(str(error), field="model") from error
            finally:
                self._engine.accept_opens()
            self._model = wanted
            log.info("model_reloaded", model=wanted, model_version=info.model_version)
            return info
