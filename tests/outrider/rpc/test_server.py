"""The server that every process runs, with the scheduler's contract as the example."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import NamedTuple

import grpc
import pytest
from google.protobuf import empty_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from outrider.rpc.channel import open_channel
from outrider.rpc.errors import Internal, InvalidArgument, ResourceExhausted, error_from_rpc
from outrider.rpc.server import is_loopback, run_server
from outrider.rpc.settings import ServerSettings
from outrider.rpc.startup import PortUnavailable
from outrider.sampling.parameters import InvalidParameter, SamplingParameters
from outrider.v1 import scheduler_pb2_grpc
from outrider.wire import scheduler as wire
from outrider.wire.generation import Failure
from outrider.wire.scheduler import GenerateRequest
from outrider.wire.state import SchedulerState
from outrider.wire.tensors import MalformedMessage

NAME = "outrider.v1.SchedulerService"


class Servicer(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Raises what it is told to, or stays open until it is drained."""

    def __init__(self, error=None):
        self.error = error
        self.closed = asyncio.Event()
        self.entered = asyncio.Event()
        self.drain = asyncio.Event()

    async def Describe(self, request, context):  # noqa: N802  # gRPC's name
        if self.error:
            raise self.error
        return wire.encode_describe(SchedulerState())

    async def Generate(self, request, context):  # noqa: N802  # gRPC's name
        try:
            yield wire.encode_event(Failure("first", ""))
            self.entered.set()
            if self.error:
                raise self.error
            await self.drain.wait()
            yield wire.encode_event(Failure("last", ""))
        finally:
            self.closed.set()


class Running(NamedTuple):
    """A server under test."""

    channel: grpc.aio.Channel
    stop: asyncio.Event
    port: int


@asynccontextmanager
async def running(servicer=None, **changes):
    servicer = servicer or Servicer()
    settings = ServerSettings(**{"port": 0, "grace_s": 5, **changes})
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def on_drain():
        servicer.drain.set()

    task = asyncio.create_task(
        run_server(
            settings,
            lambda server: scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(servicer, server),
            name="example",
            service_names=(NAME,),
            stop=stop,
            ready=ready,
            on_drain=on_drain,
        )
    )
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    async with open_channel(f"127.0.0.1:{ready.result()}") as channel:
        yield Running(channel, stop, ready.result())
        stop.set()
        await task


def describe(channel):
    return scheduler_pb2_grpc.SchedulerServiceStub(channel).Describe(wire.describe_request())


def generate(channel):
    request = wire.encode_generate(GenerateRequest((1,), SamplingParameters(), 0))
    return scheduler_pb2_grpc.SchedulerServiceStub(channel).Generate(request)


async def health(channel, service):
    stub = health_pb2_grpc.HealthStub(channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


@pytest.mark.parametrize("service", ["", NAME])
async def test_health_says_serving(service):
    async with running() as (channel, _, _):
        assert await health(channel, service) == health_pb2.HealthCheckResponse.SERVING


async def test_a_health_watch_hears_of_the_drain():
    servicer = Servicer()
    async with running(servicer) as (channel, stop, _):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=NAME))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stop.set()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()


async def names_by_reflection(channel):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in stub.ServerReflectionInfo(iter([request])):
        return {each.name for each in answer.list_services_response.service}
    return set()


async def test_reflection_lists_the_services():
    async with running() as (channel, _, _):
        names = await names_by_reflection(channel)
    assert {NAME, "grpc.health.v1.Health"} <= names


async def test_reflection_can_be_turned_off():
    async with running(reflection=False) as (channel, _, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await names_by_reflection(channel)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("call", [describe, generate])
@pytest.mark.parametrize(
    ("error", "kind", "field"),
    [
        (ResourceExhausted("full", retry_after_s=2.0), ResourceExhausted, None),
        (InvalidParameter("top_p", "top_p is 0"), InvalidArgument, "top_p"),
        (MalformedMessage("prompt", "has 3 bytes"), InvalidArgument, "prompt"),
    ],
)
async def test_known_errors_become_rich_statuses(call, error, kind, field):
    async with running(Servicer(error)) as (channel, _, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await consume(call(channel))
    known = error_from_rpc(raised.value)
    assert type(known) is kind
    assert known.field == field
    assert known.retry_after_s == (2.0 if kind is ResourceExhausted else None)


@pytest.mark.parametrize("call", [describe, generate])
async def test_a_fault_of_ours_is_told_without_details(call):
    async with running(Servicer(RuntimeError("secret path /x/y"))) as (channel, _, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await consume(call(channel))
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    assert type(error_from_rpc(raised.value)) is Internal
    assert "secret" not in str(raised.value)


async def consume(call):
    if hasattr(call, "__aiter__"):
        return [message async for message in call]
    return await call


async def test_a_cancelled_stream_closes_its_generator():
    servicer = Servicer()
    async with running(servicer) as (channel, _, _):
        call = generate(channel)
        await call.read()
        await servicer.entered.wait()
        call.cancel()
        await servicer.closed.wait()


async def test_an_open_stream_ends_well_within_the_grace():
    servicer = Servicer()
    async with running(servicer) as (channel, stop, _):
        call = generate(channel)
        await call.read()
        stop.set()
        last = wire.decode_event(await call.read())
        assert await call.read() is grpc.aio.EOF
    assert last.reason == "last"


async def test_the_ready_file_says_where_and_goes_with_the_process(tmp_path):
    path = tmp_path / "run" / "example.json"
    async with running(ready_file=path):
        content = json.loads(path.read_text())
        assert content["pid"] == os.getpid()
        assert content["service"] == "example"
        assert content["address"].startswith("127.0.0.1:")
        async with open_channel(content["address"]) as other:
            await describe(other)
        assert [each.name for each in path.parent.iterdir()] == ["example.json"]
    assert not path.exists()


async def test_a_port_in_use_is_named_with_the_setting():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortUnavailable) as raised:
            async with running(port=port):
                pass
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in str(raised.value)
    assert "--port (OUTRIDER_PORT)" in str(raised.value)


async def test_a_second_server_does_not_share_the_port():
    async with running() as (_, _, port):
        with pytest.raises(PortUnavailable):
            async with running(port=port):
                pass


async def test_messages_beyond_four_mebibytes_pass():
    async with running() as (channel, _, _):
        request = wire.encode_generate(GenerateRequest((1,) * 2_000_000, SamplingParameters(), 0))
        call = scheduler_pb2_grpc.SchedulerServiceStub(channel).Generate(request)
        await call.read()
        call.cancel()


async def test_an_unknown_method_is_unimplemented():
    async with running() as (channel, _, _):
        call = channel.unary_unary(
            "/outrider.v1.SchedulerService/Nothing",
            request_serializer=empty_pb2.Empty.SerializeToString,
            response_deserializer=empty_pb2.Empty.FromString,
        )
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(empty_pb2.Empty())
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


# Whole processes.


def start(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "services.scheduler", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["--port", "99999"], {}, "--port (OUTRIDER_PORT) is '99999'"),
        ([], {"OUTRIDER_GRACE_S": "soon"}, "--grace-s (OUTRIDER_GRACE_S) is 'soon'"),
        (["--prot", "1"], {}, "--prot"),
        ([], {"OUTRIDER_LOG_LEVEL": "loud"}, "OUTRIDER_LOG_LEVEL"),
        ([], {"OTEL_TRACES_EXPORTER": "carrier-pigeon"}, "OTEL_TRACES_EXPORTER"),
    ],
)
def test_a_bad_setting_stops_the_start_with_one_line(arguments, environment, words):
    process = start(*arguments, **environment)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert error.startswith("outrider-scheduler: ")
    assert words in error
    assert error.count("\n") == 1


def test_a_port_in_use_stops_the_start_with_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = start("--port", str(taken.getsockname()[1]))
        _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert error.startswith("outrider-scheduler: cannot listen on 127.0.0.1:")
    assert error.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_zero(tmp_path, number):
    path = tmp_path / "ready.json"
    process = start("--port", "0", "--drafts", "", "--ready-file", str(path))
    try:
        while not path.exists():
            assert process.poll() is None, process.communicate()
        process.send_signal(number)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, error
    assert not path.exists()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("node-3", False),
    ],
)
def test_an_address_that_others_can_reach_is_known(host: str, loopback: bool):
    assert is_loopback(host) is loopback
