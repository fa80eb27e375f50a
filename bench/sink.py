"""An OTLP collector that keeps what it is sent; nothing is decoded while a measurement runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True, slots=True)
class Span:
    """One span; ids are lower-case hex."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]

    @property
    def duration_s(self) -> float:
        """From start to end."""
        return (self.end_ns - self.start_ns) / 1e9


class Sink(trace_service_pb2_grpc.TraceServiceServicer):
    """Use it as `with Sink() as sink:`; it listens on a free loopback port."""

    def __init__(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(max_workers=2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]  # generated
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._received: list[trace_service_pb2.ExportTraceServiceRequest] = []

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None).wait()

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process export here, every trace of it."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._port}"}

    def spans(self) -> list[Span]:
        """All spans so far."""
        return [
            _span(span)
            for request in list(self._received)
            for group in request.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]

    def Export(  # noqa: N802  # gRPC names it
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """Keep the request."""
        self._received.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()


def _span(span: Any) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        {pair.key: _value(pair.value) for pair in span.attributes},
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)
