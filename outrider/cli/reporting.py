"""Errors as a person at a terminal meets them: one line on standard error, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def fail(message: str, code: int = EXIT_ERROR) -> NoReturn:
    """End the command with one line on standard error."""
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    raise typer.Exit(code)


@contextmanager
def reported(*expected: type[Exception]) -> Iterator[None]:
    """End the command with one line when one of these is raised, and quietly on Ctrl-C."""
    try:
        yield
    except expected as error:
        fail(str(error))
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
