"""A real OTLP collector over gRPC that keeps the spans it is sent."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

Value = str | bool | int | float | list["Value"]


def _value(value: AnyValue) -> Value:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    plain: Value = getattr(value, kind or "string_value")
    return plain


def _attributes(pairs: "list[KeyValue]") -> dict[str, Value]:
    return {pair.key: _value(pair.value) for pair in pairs}


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came over the wire; ids are lower-case hex, `parent_id` is "" for a root."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str  # "CLIENT", "SERVER", "INTERNAL"
    start_ns: int
    end_ns: int
    failed: bool
    attributes: dict[str, Value]
    links: tuple[tuple[str, str], ...]  # (trace_id, span_id)
    resource: dict[str, Value]

    @property
    def service(self) -> str:
        """The resource's `service.name`."""
        return str(self.resource.get("service.name", ""))


def _received(span: trace_pb2.Span, resource: dict[str, Value]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        attributes=_attributes(list(span.attributes)),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        resource=resource,
    )


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Use it as `with Collector() as collector:`; it listens on a free loopback port.

    Give `collector.environment` to the processes under test, then ask `collector.wait_for`.
    """

    def __init__(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(max_workers=4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._changed = threading.Condition()
        self._spans: list[ReceivedSpan] = []

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None).wait()

    @property
    def endpoint(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to export here, soon after each span."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    @property
    def spans(self) -> list[ReceivedSpan]:
        """All spans so far, in the order of their arrival."""
        with self._changed:
            return list(self._spans)

    def named(self, name: str) -> list[ReceivedSpan]:
        """The spans of one name so far, in the order of their start."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_ns)

    def wait_for(
        self, condition: Callable[[list[ReceivedSpan]], bool], *, timeout_s: float = 20.0
    ) -> list[ReceivedSpan]:
        """All spans, once they fulfil `condition`; an AssertionError that lists them if they never do.

        It blocks: call it through `asyncio.to_thread` where a loop runs.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self._spans), timeout_s):
                seen = sorted(f"{span.service}: {span.name}" for span in self._spans)
                raise AssertionError("the expected spans did not come; these did:\n" + "\n".join(seen))
            return list(self._spans)

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """Keep the spans of one export call."""
        with self._changed:
            for group in request.resource_spans:
                resource = _attributes(list(group.resource.attributes))
                for scope in group.scope_spans:
                    self._spans += (_received(span, resource) for span in scope.spans)
            self._changed.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()
