"""The application: its commands by name."""

from __future__ import annotations

import typer

from outrider.cli.bench import ANY_ARGUMENTS, bench
from outrider.cli.generate import generate
from outrider.cli.models import models
from outrider.cli.purge import purge
from outrider.cli.top import top
from outrider.cli.up import up
from outrider.cli.version import version
from outrider.cli.warm import warm

app = typer.Typer(
    name="outrider",
    help="Speculative decoding as a set of services: exact output, drafted elsewhere, traced round by round.",
    no_args_is_help=True,
    add_completion=True,
    # Errors stay plain lines, which a pipe and a small window show whole.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(generate)
app.command()(top)
app.command()(warm)
app.command()(purge)
app.add_typer(models)
app.command(context_settings=ANY_ARGUMENTS)(bench)
app.command()(version)

if __name__ == "__main__":
    app()
