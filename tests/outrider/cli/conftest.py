"""A running gateway, and a stand-in for a service, which is started as the real ones are."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from outrider.cli.child import Child
from outrider.cli.plan import ChildPlan
from tests.support.gateway import backend, end_id, files, ids, info, tokenizer

__all__ = ["backend", "end_id", "files", "ids", "info", "tokenizer"]

STUB = """
import json, os, pathlib, signal, sys, time
flags = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:])
mode = flags.get("mode", "")
print("stub speaks", flags["port"], flush=True)
if mode == "broken":
    print("outrider-stub: --model is 'x': no such model", file=sys.stderr)
    sys.exit(2)
if mode == "crashing":
    raise RuntimeError("stub is broken")
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(flags["ready-file"]).write_text(json.dumps({"pid": os.getpid()}))
time.sleep(600)
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    """child("draft", mode="stubborn"): not started."""
    (tmp_path / "outrider_stub.py").write_text(STUB)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    )

    def make(name: str, *, mode: str = "") -> Child:
        return Child(stub_plan(name, mode), tmp_path)

    return make


def stub_plan(name: str, mode: str = "") -> ChildPlan:
    return ChildPlan(name, "outrider_stub", 4711, (f"--mode={mode}",))


async def start_command(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    """`outrider` as a process, beside what this event loop serves."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "outrider.cli.main",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )


async def run_command(*arguments: str, **environment: str) -> tuple[int | None, str, str]:
    """Exit code, standard output and standard error of a command that ends by itself."""
    process = await start_command(*arguments, **environment)
    out, error = await process.communicate()
    return process.returncode, out.decode(), error.decode()


def runs(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
