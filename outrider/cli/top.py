"""`outrider top`: a live view of what schedulers do."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Sequence
from itertools import chain
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from outrider.cli.reporting import EXIT_ERROR, EXIT_USAGE, fail
from outrider.cli.watched import Watched, as_json

DEFAULT_SCHEDULER = "127.0.0.1:50051"


def top(
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of a scheduler, host:port; may be given several times.",
            show_default=DEFAULT_SCHEDULER,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show one frame and end.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="One JSON object a line and frame, in place of a picture.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, max=60, help="Seconds from one frame to the next.")
    ] = 1.0,
) -> None:
    """Show throughput, acceptance by source and depth, the k that is chosen, workers, alerts and the store.

    It goes on until Ctrl-C, also while a scheduler is away. Without a terminal, frame follows frame as plain
    text. With --once the exit code is 1 when a scheduler is not reached.
    """
    addresses = list(dict.fromkeys(scheduler or [DEFAULT_SCHEDULER]))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            fail(f"--scheduler is {address!r}; give host:port, such as {DEFAULT_SCHEDULER}", EXIT_USAGE)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal has the characters of the bars
    try:
        all_reached = asyncio.run(_show(addresses, interval_s, once=once, json_=json_))
    except KeyboardInterrupt:
        return  # the way to end it
    if once and not all_reached:
        raise typer.Exit(EXIT_ERROR)


async def _show(addresses: Sequence[str], interval_s: float, *, once: bool, json_: bool) -> bool:
    """Show frames until told to stop; with `once`, whether all were reached."""
    watched = [Watched(address) for address in addresses]
    console = Console()
    try:
        if once or json_ or not console.is_terminal:
            while True:
                await asyncio.gather(*(each.poll() for each in watched))
                if json_:
                    print(as_json(watched), flush=True)
                else:
                    console.print(_views(watched))
                if once:
                    return all(each.state is not None for each in watched)
                await asyncio.sleep(interval_s)
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                await asyncio.gather(*(each.poll() for each in watched))
                live.update(_views(watched), refresh=True)
                await asyncio.sleep(interval_s)
    finally:
        for each in watched:
            await each.close()


def _views(watched: Sequence[Watched]) -> RenderableType:
    return Group(*chain.from_iterable((each.view(), Text()) for each in watched))
