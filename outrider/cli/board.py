"""The readiness table: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from outrider.cli.child import Child, State

REFRESH_S = 0.2
REMIND_S = 30.0
"""Without a terminal, those still starting are named this often."""

STYLES = {State.STARTING: "yellow", State.READY: "green", State.ENDED: "red"}


class Board:
    """Shows how far the children are, until it is cancelled."""

    def __init__(self, console: Console, children: Sequence[Child]) -> None:
        self._console = console
        self._children = children

    async def show(self) -> None:
        """Follow the children until all are ready or one has ended."""
        if self._console.is_terminal:
            await self._show_table()
        else:
            await self._show_lines()

    def say(self, line: str) -> None:
        """Print one line, as it is."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _settled(self) -> bool:
        states = {child.state for child in self._children}
        return State.ENDED in states or states == {State.READY}

    async def _show_table(self) -> None:
        with Live(self._table(), console=self._console, auto_refresh=False) as live:
            while not self._settled():
                await asyncio.sleep(REFRESH_S)
                live.update(self._table(), refresh=True)

    async def _show_lines(self) -> None:
        told: set[str] = set()
        reminded_s = time.monotonic()
        while True:
            settled = self._settled()
            for child in self._children:
                if child.state is State.READY and child.plan.name not in told:
                    told.add(child.plan.name)
                    plan = child.plan
                    metrics = f", metrics {plan.metrics_address}" if plan.metrics_address else ""
                    self.say(
                        f"{plan.name:<12} {plan.address:<16} {_progress(child)}, pid {child.pid}{metrics}"
                    )
            if settled:
                return
            if time.monotonic() - reminded_s > REMIND_S:
                reminded_s = time.monotonic()
                for child in self._children:
                    if child.state is State.STARTING:
                        self.say(f"{child.plan.name:<12} still starting (log: {child.log})")
            await asyncio.sleep(REFRESH_S)

    def _table(self) -> Table:
        table = Table("process", "address", "metrics", "pid", "state", box=None, pad_edge=False)
        for child in self._children:
            style = STYLES[child.state]
            state = f"[{style}]{_progress(child)}[/{style}]"
            metrics = child.plan.metrics_address or "off"
            table.add_row(child.plan.name, child.plan.address, metrics, str(child.pid or ""), state)
        return table


def _progress(child: Child) -> str:
    match child.state:
        case State.STARTING:
            return f"starting, {time.monotonic() - child.started_s:.0f} s"
        case State.READY:
            return f"ready in {child.ready_s - child.started_s:.1f} s"
        case State.ENDED:
            return child.ending
