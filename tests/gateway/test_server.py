"""The gateway as a process: its start, its model, its stop, its trace."""

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway import server, watch
from gateway.generation import Generator
from gateway.schedulers import Schedulers
from gateway.served import ServedModel
from gateway.settings import GatewaySettings
from outrider.client import (
    Chat,
    ChatMessage,
    Final,
    FinishReason,
    OutriderClient,
    PromptIds,
    SamplingParameters,
    Speculation,
)
from outrider.rpc import errors
from outrider.rpc.settings import SettingsError, read_settings
from outrider.rpc.startup import PortUnavailable
from outrider.telemetry import tracing_to
from outrider.telemetry.names import is_declared_attribute, is_declared_span
from outrider.wire.generation import Failure
from outrider.wire.inference import GenerateRequest
from outrider.wire.state import SchedulerState, WorkerStatus
from tests.support.gateway import running_gateway
from tests.support.scripted import Script

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _quick_checks(monkeypatch):
    monkeypatch.setattr(watch, "CHECK_INTERVAL_S", 0.02)
    monkeypatch.setattr(watch, "SEARCH_INTERVAL_S", 0.02)


async def eventually(condition):
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110  # the other side is a process of its own
            await asyncio.sleep(0.02)


async def test_the_port_opens_when_a_validator_is_ready(backend, info, ids, tmp_path):
    backend.show(info, WorkerStatus.UNREACHABLE)
    ready_file = tmp_path / "ready"
    ready, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
    settings = GatewaySettings(scheduler=backend.address, port=0, ready_file=ready_file)
    task = asyncio.create_task(server.serve(settings, ready=ready, stop=stop))
    await asyncio.sleep(0.2)
    assert not ready.done()
    assert not ready_file.exists()
    backend.show(info)
    port = await asyncio.wait_for(ready, 20)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "outrider.v1.InferenceService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert json.loads(ready_file.read_text())["service"] == "gateway"
    stop.set()
    await asyncio.wait_for(task, 20)
    assert not ready_file.exists()


async def test_a_gateway_that_still_waits_can_be_stopped(backend):
    backend.scheduler.state = SchedulerState()
    stop = asyncio.Event()
    task = asyncio.create_task(server.serve(GatewaySettings(scheduler=backend.address, port=0), stop=stop))
    await asyncio.sleep(0.1)
    stop.set()
    await asyncio.wait_for(task, 20)


async def test_a_port_in_use_is_named(backend):
    async with running_gateway(backend) as address:
        port = int(address.rpartition(":")[2])
        settings = GatewaySettings(scheduler=backend.address, port=port)
        with pytest.raises(PortUnavailable, match=f"cannot listen on {address}"):
            await server.serve(settings)


async def test_a_model_that_changes_is_fetched_again_and_only_then(backend, client, files, info, ids):
    script = backend.play(Script([ids("one")]))
    await asyncio.sleep(0.2)
    assert backend.worker.num_fetches == 1
    backend.worker.files = replace(files, chat_template="{{ messages[0].content }}")
    backend.show(replace(info, model="other", weight_fingerprint="other"))

    async def changed():
        return [each.model for each in await client.list_models()] == ["other"]

    await eventually(changed)
    assert backend.worker.num_fetches == 2
    await client.complete(Chat((ChatMessage("user", "one two"),)), model="other")
    assert script.request.prompt == ids("one two")
    with pytest.raises(errors.NotFound, match="'tiny' is not served; ask for 'other'"):
        await client.complete("one", model="tiny")


async def test_a_tokenizer_that_does_not_fit_its_fingerprint_is_not_taken(backend, client, info):
    backend.show(replace(info, model="other", tokenizer_fingerprint="changed meanwhile"))
    await asyncio.sleep(0.2)
    assert backend.worker.num_fetches > 1
    assert await client.list_models() == (info,)


async def test_a_model_stays_while_no_validator_is_ready(backend, client, info, ids):
    backend.play(Script([ids("one")]))
    backend.show(info, WorkerStatus.UNREACHABLE)
    await asyncio.sleep(0.1)
    assert (await client.complete("one")).text == "one"


async def test_an_open_answer_ends_within_the_grace_of_a_stop(backend, ids):
    gate = asyncio.Semaphore(1)
    script = backend.play(Script([ids("one"), ids(" two")], gate=gate))
    ready, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
    settings = GatewaySettings(scheduler=backend.address, port=0, grace_s=20)
    task = asyncio.create_task(server.serve(settings, ready=ready, stop=stop))
    async with OutriderClient(f"127.0.0.1:{await ready}") as client:
        async with aclosing(client.generate("one")) as events:
            texts = [(await anext(events)).text]
            stop.set()
            await asyncio.sleep(0.1)
            gate.release()
            *rest, final = [event async for event in events]
        assert "".join([*texts, *(event.text for event in rest)]) == "one two"
        assert final.finish_reason is FinishReason.LENGTH
        await asyncio.wait_for(task, 20)
    assert not script.cancelled.is_set()


class Traces:
    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.tracing = tracing_to(SimpleSpanProcessor(self.exporter), "gateway", "test")

    @property
    def spans(self):
        return self.exporter.get_finished_spans()


@pytest.fixture
def traces():
    traces = Traces()
    yield traces
    traces.tracing.shutdown()


async def test_an_answer_is_one_span_that_continues_the_clients_trace(backend, traces, ids):
    script = backend.play(Script([ids("one two")]))
    async with running_gateway(backend, tracing=traces.tracing) as address, OutriderClient(address) as client:
        completion = await client.complete("one", seed=5, metadata=[("traceparent", TRACEPARENT)])
    (span,) = traces.spans
    assert span.name == "chat tiny"
    assert is_declared_span(span.name)
    assert all(is_declared_attribute(key) for key in span.attributes)
    trace_id = f"{span.context.trace_id:032x}"
    assert completion.final.trace_id == trace_id == TRACEPARENT.split("-")[1]
    assert f"{span.parent.span_id:016x}" == TRACEPARENT.split("-")[2]
    assert script.metadata["traceparent"] == f"00-{trace_id}-{span.context.span_id:016x}-01"
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.seed": 5,
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.response.finish_reasons": ("length",),
        "outrider.rounds": 1,
        "outrider.numerics_id": "numerics",
    }
    assert {key: span.attributes[key] for key in expected} == expected
    assert not any("two" in str(value) for value in span.attributes.values())


async def test_a_seed_beyond_63_bits_does_not_break_the_span(backend, traces, ids):
    backend.play(Script([ids("one")]))
    async with running_gateway(backend, tracing=traces.tracing) as address, OutriderClient(address) as client:
        await client.complete("one", seed=2**64 - 1)
    assert traces.spans[0].attributes["gen_ai.request.seed"] == str(2**64 - 1)


async def test_a_gateway_that_records_nothing_passes_the_clients_trace_on(backend, client, ids):
    script = backend.play(Script([ids("one")]))
    completion = await client.complete("one", metadata=[("traceparent", TRACEPARENT), ("tracestate", "a=b")])
    assert (script.metadata["traceparent"], script.metadata["tracestate"]) == (TRACEPARENT, "a=b")
    assert completion.final.trace_id == TRACEPARENT.split("-")[1]


@pytest.mark.parametrize(
    ("end", "error_type"),
    [
        (Failure("NO_EQUAL_REPLICA", "lost", retryable=True), "NO_EQUAL_REPLICA"),
        (errors.Internal("boom"), "INTERNAL"),
    ],
)
async def test_a_failed_answer_is_a_failed_span(backend, traces, ids, end, error_type):
    backend.play(Script([ids("one")], end=end))
    async with running_gateway(backend, tracing=traces.tracing) as address, OutriderClient(address) as client:
        with pytest.raises(errors.OutriderError):
            await client.complete("one")
    (span,) = traces.spans
    assert not span.status.is_ok
    assert span.attributes["error.type"] == error_type


async def test_an_answer_that_nobody_waits_for_is_a_cancelled_span(backend, traces, ids):
    script = backend.play(Script([ids("one")], end=None))
    async with running_gateway(backend, tracing=traces.tracing) as address, OutriderClient(address) as client:
        async with aclosing(client.generate(PromptIds((1,)))) as events:
            await anext(events)
        await asyncio.wait_for(script.cancelled.wait(), 20)
    (span,) = traces.spans
    assert span.attributes["error.type"] == "cancelled"


async def test_a_client_that_leaves_with_the_final_event_has_cancelled_nothing(
    backend, traces, files, info, ids
):
    backend.play(Script([ids("one")]))
    request = GenerateRequest(PromptIds((1,)), "", SamplingParameters(), None, (), Speculation(), 0)
    schedulers = Schedulers([backend.address])
    generator = Generator(schedulers, traces.tracing, max_prompt_bytes=100)
    async with aclosing(generator.generate(request, ServedModel.load(info, files), None)) as events:
        async for event in events:
            if isinstance(event, Final):
                break
    await schedulers.close()
    (span,) = traces.spans
    assert "error.type" not in span.attributes
    assert span.attributes["gen_ai.response.finish_reasons"] == ("length",)


@pytest.mark.parametrize(
    "address", ["localhost", "localhost:", ":50051", "localhost:0", "localhost:99999", "x:y"]
)
def test_a_scheduler_that_is_no_address_stops_the_start(address):
    with pytest.raises(SettingsError, match=r"--scheduler \(OUTRIDER_SCHEDULER\).*write host:port"):
        read_settings(GatewaySettings, [f"--scheduler={address}"])
