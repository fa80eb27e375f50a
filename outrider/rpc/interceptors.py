"""The server interceptor that turns exceptions into statuses, for coroutine and generator methods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn

import grpc
from grpc_status import rpc_status

from outrider.rpc.errors import Internal, InvalidArgument, OutriderError, status_of
from outrider.sampling.parameters import InvalidParameter
from outrider.telemetry import get_logger
from outrider.wire.tensors import MalformedMessage

log = get_logger(__name__)

OWN_METHODS = "/outrider."
"""Health and reflection write to their context, which a generator can not do; they raise nothing of ours."""


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Ends a call whose handler raised with the status of the error table.

    An exception that the table does not know is a fault of ours: the client learns only that, and the log has
    the traceback.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or not method.startswith(OWN_METHODS):
            return handler
        return _wrapped(handler, method)


def as_outrider_error(error: Exception) -> OutriderError | None:
    """The entry of the error table that an exception stands for; None when it is a fault of ours."""
    match error:
        case OutriderError():
            return error
        case InvalidParameter() | MalformedMessage():
            return InvalidArgument(str(error), field=error.field)
        case _:
            return None


def _wrapped(handler: Any, method: str) -> grpc.RpcMethodHandler[Any, Any]:
    """The same kind of handler with the errors of its behaviour translated."""
    serializers = {
        "request_deserializer": handler.request_deserializer,
        "response_serializer": handler.response_serializer,
    }
    match handler.request_streaming, handler.response_streaming:
        case False, False:
            return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary, method), **serializers)
        case False, True:
            return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream, method), **serializers)
        case True, False:
            return grpc.stream_unary_rpc_method_handler(_unary(handler.stream_unary, method), **serializers)
        case _:
            return grpc.stream_stream_rpc_method_handler(
                _stream(handler.stream_stream, method), **serializers
            )


def _unary(behaviour: Callable[..., Awaitable[Any]], method: str) -> Callable[..., Awaitable[Any]]:
    async def translated(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behaviour(request, context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001  # translated, never lost
            await _abort(error, context, method)

    return translated


def _stream(behaviour: Callable[..., AsyncIterator[Any]], method: str) -> Callable[..., AsyncIterator[Any]]:
    async def translated(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            # Closed with the call, not when the garbage collector comes by.
            async with aclosing(behaviour(request, context)) as responses:  # type: ignore[type-var]  # a generator
                async for response in responses:
                    yield response
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001  # translated, never lost
            await _abort(error, context, method)

    return translated


async def _abort(error: Exception, context: grpc.aio.ServicerContext[Any, Any], method: str) -> NoReturn:
    known = as_outrider_error(error)
    if known is None:
        log.error("rpc_failed", method=method, exc_info=error)
        known = Internal("internal error; the log of the process has the details")
    status = rpc_status.to_status(status_of(known))
    await context.abort(status.code, status.details, status.trailing_metadata)
