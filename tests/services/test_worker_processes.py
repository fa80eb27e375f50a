"""Workers as the operating system sees them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.models import tiny_model

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def start(service: str, *flags: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        f"services.{service}",
        "--num-threads",
        "1",
        "--kv-budget-mib",
        "4",
        *flags,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_start_that_fails_says_why_in_one_line(folder: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        cases = [
            ("draft", ("--model", str(folder / "nowhere")), "nowhere"),
            ("validator", ("--model", str(folder), "--port", port), f"127.0.0.1:{port}"),
            ("validator", ("--model", str(folder), "--token-budget", "7"), "--token-budget"),
        ]
        running = [(service, start(service, *flags), named) for service, flags, named in cases]
        for service, process, named in running:
            _, errors = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 2, errors
            last = errors.strip().splitlines()[-1]
            assert last.startswith(f"outrider-{service}: ")
            assert named in last
            assert "Traceback" not in errors


@pytest.mark.parametrize("service", ["validator", "draft"])
def test_a_process_serves_and_stops_on_sigterm(service: str, folder: Path, tmp_path: Path):
    ready_file = tmp_path / "ready.json"
    process = start(service, "--model", str(folder), "--port", "0", "--ready-file", str(ready_file))
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not ready_file.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ready = json.loads(ready_file.read_text())
        assert ready["pid"] == process.pid
        assert ready["service"] == service
        host, port = ready["address"].split(":")
        socket.create_connection((host, int(port)), timeout=5).close()
        os.kill(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
        assert not ready_file.exists()
    finally:
        process.kill()
        process.communicate()
