"""`outrider top` as a process, and what it shows of a scheduler that goes and comes."""

import asyncio
import io
import json
import os
import pty
import signal
import sys

import grpc
import pytest
from rich.console import Console
from typer.testing import CliRunner

from outrider.cli.main import app
from outrider.cli.watched import PERIOD_S, Watched
from outrider.v1 import scheduler_pb2_grpc
from outrider.wire.state import AlertState, ControlState, SchedulerState
from tests.outrider.cli.conftest import run_command, start_command
from tests.support.gateway import running_gateway
from tests.support.scripted import scripted_backend


def shown(watched):
    out = io.StringIO()
    Console(file=out, width=200).print(watched.view())
    return out.getvalue()


async def test_once_is_one_frame_without_colour(backend, info):
    code, out, error = await run_command("top", "--once", "--scheduler", backend.address)
    assert (code, error) == (0, "")
    assert out.startswith(f"scheduler {backend.address} · 0 sessions running")
    assert out.count("scheduler ") == 1
    assert f"{backend.address} ready" in out
    assert "\x1b" not in out


async def test_json_is_the_whole_state(backend, info):
    state = SchedulerState(control=ControlState(depth_cap=3, figures={"throughput": 2.5}))
    backend.scheduler.state = state
    code, out, _ = await run_command("top", "--once", "--json", "--scheduler", backend.address)
    assert code == 0
    (document,) = [json.loads(line) for line in out.splitlines()]
    assert set(document) == {"unix_ms", "schedulers"}
    (found,) = document["schedulers"]
    assert (found["address"], found["problem"]) == (backend.address, "")
    assert found["state"]["control"]["figures"] == {"throughput": 2.5}
    assert found["state"]["control"]["depth_cap"] == 3
    backend.show(info)
    _, out, _ = await run_command("top", "--once", "--json", "--scheduler", backend.address)
    (validator,) = json.loads(out)["schedulers"][0]["state"]["validators"]
    assert validator["status"] == "ready"
    assert validator["info"]["instance_id"] == b"instance".hex()


async def test_several_schedulers_are_shown_and_one_that_is_away_is_told(backend):
    flags = ["--scheduler", backend.address, "--scheduler", "127.0.0.1:1", "--scheduler", backend.address]
    code, out, _ = await run_command("top", "--once", *flags)
    assert code == 1
    assert out.count(f"scheduler {backend.address} ·") == 1
    assert "scheduler 127.0.0.1:1 not reached: " in out
    code, out, _ = await run_command("top", "--once", "--json", *flags)
    assert code == 1
    assert [bool(each["state"]) for each in json.loads(out)["schedulers"]] == [True, False]


async def test_a_gateway_is_no_scheduler(backend):
    async with running_gateway(backend) as address:
        code, out, _ = await run_command("top", "--once", "--scheduler", address)
    assert code == 1
    assert "there is no scheduler" in out


async def test_without_a_terminal_frame_follows_frame_until_ctrl_c(backend):
    process = await start_command("top", "--interval", "0.1", "--scheduler", backend.address)
    num_frames = 0
    while num_frames < 3:
        num_frames += (await process.stdout.readline()).startswith(b"scheduler ")
    process.send_signal(signal.SIGINT)
    _, error = await process.communicate()
    assert (process.returncode, error) == (0, b"")


async def test_on_a_terminal_it_is_live_and_leaves_it_as_it_was(backend):
    backend.scheduler.state = SchedulerState(alerts=(AlertState("low", "m", "CRITICAL", firing=True),))
    reader, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "20"}
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "outrider.cli.main",
            "top",
            "--interval",
            "0.1",
            "--scheduler",
            backend.address,
        ),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
    )
    os.close(terminal)
    output = b""
    while output.count(b"scheduler ") < 3:
        output += await asyncio.to_thread(os.read, reader, 4096)
    process.send_signal(signal.SIGINT)
    try:
        while chunk := await asyncio.to_thread(os.read, reader, 4096):
            output += chunk
    except OSError:  # the other end is closed
        pass
    os.close(reader)
    assert await process.wait() == 0
    assert output.index(b"\x1b[?1049h") < output.rindex(b"\x1b[?1049l")  # the alternate screen, and back
    assert b"\x1b[1;31mCRITICAL low" in output
    assert b"Traceback" not in output


async def test_a_scheduler_that_starts_again_is_reached_again(files, info):
    async with scripted_backend(files, info) as backend:
        backend.scheduler.state = SchedulerState(control=ControlState(committed=90, rounds_by_k=(90,)))
        watched = Watched(backend.address)
        await watched.poll()
        assert "of 90 rounds" in shown(watched)
        port = int(backend.address.rpartition(":")[2])
    await watched.poll()
    assert watched.state is None
    assert f"scheduler {watched.address} not reached: " in shown(watched)
    server = grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(backend.scheduler, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    backend.scheduler.state = SchedulerState(control=ControlState(committed=95, rounds_by_k=(95,)))
    async with asyncio.timeout(20):
        while watched.state is None:
            await watched.poll()
            await asyncio.sleep(0.05)
    assert "since the start" in shown(watched)
    assert "of 95 rounds" in shown(watched)
    await watched.close()
    await server.stop(0)


async def test_figures_are_over_the_last_seconds(backend):
    now_s = 0.0
    watched = Watched(backend.address, clock=lambda: now_s)
    for now_s in range(0, 31, 5):
        rounds = 10 * int(now_s)
        backend.scheduler.state = SchedulerState(
            control=ControlState(committed=rounds, rounds_by_k=(rounds,))
        )
        await watched.poll()
    text = shown(watched)
    assert f"last {PERIOD_S:.0f} s" in text
    assert "10.0 now" in text
    assert "of 100 rounds" in text
    await watched.close()


@pytest.mark.parametrize("address", ["localhost", ":50051", "localhost:0", "x:y"])
def test_a_scheduler_that_is_no_address_is_wrong_usage(address):
    result = CliRunner().invoke(app, ["top", "--once", "--scheduler", address])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--scheduler is {address!r}; give host:port" in result.stderr
