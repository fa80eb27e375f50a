"""`outrider up`: all processes of one deployment, on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import platformdirs
import typer
from rich.console import Console

from outrider.cli.board import Board
from outrider.cli.child import Child
from outrider.cli.plan import (
    ChildPlan,
    Devices,
    Numbers,
    PlanError,
    num_processes,
    pair_of,
    plan,
    with_metrics,
)
from outrider.cli.ports import metrics_ports_of, ports_of
from outrider.cli.reporting import fail, reported
from outrider.cli.supervisor import StartFailed, Supervisor
from outrider.client import DEFAULT_ADDRESS
from outrider.runtime.dtypes import Dtype

DEFAULT_MODELS = "smollm2"


def up(
    models: Annotated[
        str,
        typer.Option(
            help="A fetched set (see `outrider models list`), or TARGET[,DRAFT...], each a fetched model, "
            "a hub id, a folder or a GGUF file. Of several drafts each session gets the one that serves its "
            "like best. Without a draft, drafts come from the session's own text."
        ),
    ] = DEFAULT_MODELS,
    validators: Annotated[int, typer.Option(min=1, max=64, help="Validators that hold the target.")] = 1,
    drafts: Annotated[int, typer.Option(min=1, max=64, help="Draft processes of each draft model.")] = 1,
    schedulers: Annotated[
        int,
        typer.Option(min=1, max=16, help="Schedulers; when one is lost another goes on."),
    ] = 1,
    redis: Annotated[
        str,
        typer.Option(
            envvar="OUTRIDER_REDIS_URL",
            help="Redis for patterns and answers, redis://[USER:PASSWORD@]HOST:PORT/DB.",
            show_default="each scheduler keeps its own",
        ),
    ] = "",
    ports: Annotated[
        str,
        typer.Option(help="default (from 50050 on), auto (any that are free), or the first port of a row."),
    ] = "default",
    metrics_ports: Annotated[
        str,
        typer.Option(
            help="Ports of /metrics: default (from 9464 on), auto, off, or the first port of a row.",
            show_default="default with --ports default, else auto",
        ),
    ] = "",
    dtype: Annotated[
        Dtype | None,
        typer.Option(help="Weights of the models; the workers' own default, bfloat16, unless given."),
    ] = None,
    draft_dtype: Annotated[
        Dtype | None,
        typer.Option(
            help="Weights of the draft. Changes its speed and how often it is right, never an answer.",
            show_default="that of --dtype if given, else int4 on the CPU",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Where the models run: cpu, cuda or cuda:N.", show_default="OUTRIDER_DEVICE if set, else cpu"
        ),
    ] = None,
    draft_device: Annotated[
        str | None,
        typer.Option(help="Where the drafts run.", show_default="where the target does"),
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="JSON file to write when all are ready: gateway, processes, pids.")
    ] = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for the processes' logs.", show_default="the user's state folder"),
    ] = None,
    restart: Annotated[bool, typer.Option(help="Start a process that dies again.")] = True,
) -> None:
    """Start gateway, schedulers, drafts and validators as processes on 127.0.0.1; Ctrl-C stops them.

    Settings that are not flags here reach the processes through the environment: OUTRIDER_NUM_THREADS,
    OUTRIDER_KV_BUDGET_MIB, OUTRIDER_POLICY, OTEL_EXPORTER_OTLP_ENDPOINT and so on.
    """
    with reported(PlanError, OSError):
        pair = pair_of(models)
        numbers = Numbers(validators, drafts, schedulers)
        chosen = ports_of(ports, num_processes(pair, numbers))
        scraped = metrics_ports_of(metrics_ports or ("default" if ports == "default" else "auto"), chosen)
        laid_out = plan(
            pair,
            chosen,
            numbers,
            dtype=dtype,
            draft_dtype=draft_dtype,
            devices=Devices(device, draft_device),
            redis_url=redis,
        )
        plans = with_metrics(laid_out, chosen, scraped)
        folder = _prepare(log_dir or platformdirs.user_state_path("outrider") / "up" / str(chosen[0]), plans)
        code = asyncio.run(_run(plans, folder, ready_file, restart=restart))
    raise typer.Exit(code)


def _prepare(folder: Path, plans: list[ChildPlan]) -> Path:
    """Make the folder, and begin each log anew."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in plans:
        (folder / f"{each.name}.log").write_bytes(b"")
    return folder.resolve()


async def _run(plans: list[ChildPlan], folder: Path, ready_file: Path | None, *, restart: bool) -> int:
    children = [Child(each, folder) for each in plans]
    board = Board(Console(), children)
    supervisor = Supervisor(children, restart=restart, say=board.say)
    stop = asyncio.Event()
    _on_signals(stop, supervisor)
    try:
        if not await _start(supervisor, board, stop):
            return 0
        _write_ready_file(ready_file, children)
        board.say(_welcome(plans[-1].address, folder))
        watching = asyncio.create_task(supervisor.watch(lambda: _write_ready_file(ready_file, children)))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        if not stop.is_set():
            fail("all processes have ended")
        board.say("stopping")
    except StartFailed as error:
        if not error.child.refusal:
            print(error.child.tail(), file=sys.stderr)
        fail(f"{error.child.refusal or error} (log: {error.child.log})")
    finally:
        _remove_ready_file(ready_file)
        await supervisor.stop()
    return 0


async def _start(supervisor: Supervisor, board: Board, stop: asyncio.Event) -> bool:
    """Start all children in view of the user; False when told to stop before they were ready."""
    starting = asyncio.create_task(supervisor.start())
    stopping = asyncio.create_task(stop.wait())
    showing = asyncio.create_task(board.show())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await showing
            starting.result()
        return starting.done()
    finally:
        for each in (starting, stopping, showing):
            each.cancel()
            with suppress(asyncio.CancelledError, StartFailed):
                await each


def _on_signals(stop: asyncio.Event, supervisor: Supervisor) -> None:
    """The first signal stops the children in order, a second one at once."""

    def on_signal() -> None:
        if stop.is_set():
            supervisor.kill()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)


def _write_ready_file(path: Path | None, children: list[Child]) -> None:
    """Whole or not at all; written again when a process got another pid."""
    if path is None:
        return
    processes = {
        child.plan.name: {
            "address": child.plan.address,
            "metrics": child.plan.metrics_address,
            "pid": child.pid,
            "log": str(child.log),
        }
        for child in children
    }
    document = {"gateway": children[-1].plan.address, "pid": os.getpid(), "processes": processes}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(document, indent=2) + "\n")
    temporary.replace(path)


def _remove_ready_file(path: Path | None) -> None:
    if path is not None:
        path.unlink(missing_ok=True)


def _welcome(gateway: str, folder: Path) -> str:
    server = "" if gateway == DEFAULT_ADDRESS else f" --server {gateway}"
    return f'ready; try `outrider generate "Hello"{server}`, end with Ctrl-C (logs: {folder})'
