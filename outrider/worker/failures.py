"""Which error of the table an exception in a session's work stands for."""

from __future__ import annotations

import structlog

from outrider.rpc.errors import Internal, NonFiniteLogits, OutriderError
from outrider.rpc.interceptors import as_outrider_error
from outrider.sampling import sampler

log = structlog.get_logger(__name__)


def as_session_error(error: Exception) -> OutriderError:
    """What the session is told; a fault of ours is logged with its traceback and told without details."""
    known = as_outrider_error(error)
    if known is not None:
        return known
    if isinstance(error, sampler.NonFiniteLogits):
        return NonFiniteLogits(str(error))
    log.error("session_failed", exc_info=error)
    return Internal("internal error of the worker; its log has the details")
