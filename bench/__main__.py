"""`python -m bench`."""

from bench.command import app

app(prog_name="outrider bench")
