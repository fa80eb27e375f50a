"""`outrider warm`: common prompts are answered ahead of time, so that their answers serve as drafts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from outrider.cli.prompts import InputError, prompt_of, read_prompts
from outrider.cli.reporting import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE, fail, reported
from outrider.cli.tenant import Tenant, TenantMetadata, metadata_of
from outrider.cli.warming import Progress, Warming
from outrider.client import DEFAULT_ADDRESS, OutriderClient, OutriderError, SamplingParameters
from outrider.sampling.parameters import InvalidParameter

DEFAULTS = SamplingParameters()


def warm(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSONL with prompt or turns in each object, or .txt with one prompt a line.",
            show_default=False,
        ),
    ],
    server: Annotated[
        str, typer.Option(help="Address of the gateway, host:port.", envvar="OUTRIDER_SERVER")
    ] = DEFAULT_ADDRESS,
    model: Annotated[str, typer.Option(help="Model to ask for; the one that is served unless given.")] = "",
    system: Annotated[str, typer.Option(help="System message in front of each prompt.")] = "",
    raw: Annotated[
        bool, typer.Option("--raw/--chat", help="Use the prompts as they stand, or with the chat template.")
    ] = False,
    max_tokens: Annotated[
        int, typer.Option(help="End an answer after this many tokens.")
    ] = DEFAULTS.max_tokens,
    temperature: Annotated[
        float, typer.Option(help="0: the likeliest answer, a good draft for any seed.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Above temperature 0: of each answer.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Prompts that are asked at one time.")] = 2,
    from_line: Annotated[int, typer.Option(min=1, help="Begin with this line of the file.")] = 1,
    workload: Annotated[
        str,
        typer.Option(help="Label of the kind of text, such as code.", show_default="guessed from the prompt"),
    ] = "",
    cache_salt: Annotated[str, typer.Option(help="Answers are shared within one salt only.")] = "",
    tenant: Tenant = "",
    tenant_metadata: TenantMetadata = "",
) -> None:
    """Answer the prompts of a file, so that the candidate cache holds the answers.

    Whoever asks one of them later gets the same answer as without, and sooner: what is kept is a draft, each
    token of which is verified. Ask as they will, with the same system message, model and chat template.
    A prompt that fails does not stop the others; the exit code is 1 then.
    """
    metadata = metadata_of(tenant, tenant_metadata)
    options: dict[str, Any] = {
        "model": model,
        "sampling": SamplingParameters(temperature=temperature, max_tokens=max_tokens),
        "seed": seed,
        "workload": workload,
        "cache_salt": cache_salt,
        "metadata": metadata,
    }
    with reported(InputError, InvalidParameter, OutriderError):
        options["sampling"].validate()
        prompt_of("", system, raw=raw)  # says so when these contradict
        prompts = [each for each in read_prompts(file) if each.line >= from_line]
        if not prompts:
            fail(f"{file} has no prompt from line {from_line} on; lower --from-line", EXIT_USAGE)
        if raw and (many := [each.line for each in prompts if len(each.turns) > 1]):
            fail(f"{file}, line {many[0]}: several turns need the chat template; drop --raw", EXIT_USAGE)
        warming = Warming(prompts, options, system=system, raw=raw)
        interrupted = not asyncio.run(_run(server, warming, concurrency))
    print(warming.summary())
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if warming.num_failed or warming.is_given_up:
        raise typer.Exit(EXIT_ERROR)


async def _run(server: str, warming: Warming, concurrency: int) -> bool:
    """Whether it came to its end; Ctrl-C gives back what is done so far."""
    async with OutriderClient(server) as client:
        # Nobody there, or a wrong model, is one error and not one for each prompt.
        await warming.check(client)
        with Progress(Console(file=sys.stderr), warming.num_prompts) as progress:
            try:
                await warming.run(client, progress, concurrency)
            except asyncio.CancelledError:
                return False
    return True
