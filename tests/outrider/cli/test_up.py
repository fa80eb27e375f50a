import asyncio
import json
import os
import signal
import socket
import sys

import pytest
import typer
from typer.testing import CliRunner

from outrider.cli import up
from outrider.cli.main import app
from tests.outrider.cli.conftest import runs, stub_plan

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def invoke(*arguments):
    return CliRunner().invoke(app, ["up", *arguments])


@pytest.fixture
def bound():
    """A port that is in use."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--models", "a,b,b"],
            "--models is 'a,b,b'; give one of smollm2, qwen-coder, or TARGET, or TARGET,DRAFT",
        ),
        (["--models", ""], "--models is ''"),
        (["--models", "x", "--ports", "some"], "--ports is 'some'; give default, auto, or the first port"),
        (["--models", "x", "--ports", "65534"], "--ports is '65534'"),
    ],
)
def test_bad_input_is_one_line(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_a_port_in_use_is_named_before_anything_starts(bound):
    result = invoke("--models", "x", "--ports", str(bound))
    assert result.exit_code == 1
    assert result.stderr.startswith(
        f"error: cannot use 127.0.0.1:{bound}: address already in use; stop what uses it"
    )


@pytest.mark.parametrize("name", ["smollm2", "qwen-coder"])
def test_a_set_that_is_not_fetched_tells_how_to_fetch_it(tmp_path, monkeypatch, name):
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path))
    result = invoke("--models", name)
    assert result.exit_code == 1
    assert f"run `outrider models fetch {name}`" in result.stderr


@pytest.mark.parametrize("arguments", [["--validators", "0"], ["--dtype", "int3"], ["--nonsense"]])
def test_a_wrong_flag_is_a_usage_error(arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr


@linux
async def test_processes_run_until_a_signal_and_the_ready_file_follows_them(child, tmp_path, capfd):
    child("unused")
    ready_file = tmp_path / "sub" / "ready.json"
    plans = [stub_plan("validator"), stub_plan("gateway")]
    running = asyncio.create_task(up._run(plans, tmp_path, ready_file, restart=True))
    document = await _read(ready_file)
    assert document["gateway"] == "127.0.0.1:4711"
    assert document["pid"] == os.getpid()
    pids = {name: each["pid"] for name, each in document["processes"].items()}
    assert list(pids) == ["validator", "gateway"]
    os.kill(pids["validator"], signal.SIGKILL)
    again = await _read(
        ready_file, lambda document: document["processes"]["validator"]["pid"] != pids["validator"]
    )
    assert runs(again["processes"]["validator"]["pid"])
    assert runs(pids["gateway"])
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(running, 30) == 0
    assert not any(runs(each["pid"]) for each in again["processes"].values())
    assert not ready_file.exists()
    said = capfd.readouterr().out
    for text in (
        "validator    127.0.0.1:4711   ready in",
        "--server 127.0.0.1:4711",
        "was killed by SIGKILL",
        "stopping",
    ):
        assert text in said


@linux
async def test_a_process_that_refuses_to_start_is_quoted_in_one_line(child, tmp_path, capfd):
    child("unused")
    plans = [stub_plan("draft"), stub_plan("validator", "broken")]
    with pytest.raises(typer.Exit) as caught:
        await up._run(plans, tmp_path, None, restart=True)
    assert caught.value.exit_code == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: outrider-stub: --model is 'x': no such model (log: ")


@linux
async def test_a_process_that_breaks_at_its_start_shows_its_log(child, tmp_path, capfd):
    child("unused")
    with pytest.raises(typer.Exit):
        await up._run([stub_plan("validator", "crashing")], tmp_path, None, restart=True)
    *log, line = capfd.readouterr().err.splitlines()
    assert log[-1] == "RuntimeError: stub is broken"
    assert line.startswith("error: validator ended with exit code 1 before it was ready (log: ")


@linux
async def test_a_signal_during_the_start_stops_it(child, tmp_path, monkeypatch):
    child("unused")
    (tmp_path / "outrider_stub.py").write_text("import time; time.sleep(600)")
    running = asyncio.create_task(up._run([stub_plan("validator")], tmp_path, None, restart=True))
    await asyncio.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
    assert await asyncio.wait_for(running, 30) == 0


async def _read(path, condition=lambda _: True):
    async with asyncio.timeout(30):
        while True:
            if path.exists():
                document = json.loads(path.read_text())
                if condition(document):
                    return document
            await asyncio.sleep(0.02)
