"""`outrider bench`: measurements, which are a program of their own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import typer

from outrider.cli.reporting import EXIT_INTERRUPTED, fail

ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def bench(context: typer.Context) -> None:
    """Measure how fast answers come, beside plain decoding and other programs (`outrider bench --help`)."""
    if importlib.util.find_spec("bench") is None:
        fail("the package `bench` is not installed; install Outrider with its extra `bench`")
    child = subprocess.Popen([sys.executable, "-m", "bench", *context.args])
    while True:
        try:
            raise typer.Exit(child.wait())
        except KeyboardInterrupt:
            # The terminal has told the child as well: it stops what it has started, and ends.
            if child.poll() is not None:
                raise typer.Exit(EXIT_INTERRUPTED) from None
