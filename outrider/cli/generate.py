"""`outrider generate`: one answer from a running gateway."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated, Any

import typer

from outrider.cli.prompts import InputError, explained, prompt_of
from outrider.cli.reporting import EXIT_USAGE, fail, reported
from outrider.cli.summary import Pace, as_json, as_text
from outrider.client import (
    DEFAULT_ADDRESS,
    Completion,
    Delta,
    DraftSource,
    Final,
    OutriderClient,
    OutriderError,
    Prompt,
    SamplingParameters,
    Speculation,
)
from outrider.client.completion import collect
from outrider.rpc.errors import InvalidArgument

DEFAULTS = SamplingParameters()


class Source(StrEnum):
    """Draft sources that can be asked for."""

    NONE = "none"
    NGRAM = "ngram"
    MODEL = "model"
    PATTERN_CACHE = "pattern_cache"
    CANDIDATE_CACHE = "candidate_cache"


def generate(
    prompt: Annotated[
        str, typer.Argument(help="The prompt; - reads it from standard input.", show_default=False)
    ],
    server: Annotated[
        str, typer.Option(help="Address of the gateway, host:port.", envvar="OUTRIDER_SERVER")
    ] = DEFAULT_ADDRESS,
    model: Annotated[str, typer.Option(help="Model to ask for; the one that is served unless given.")] = "",
    system: Annotated[str, typer.Option(help="System message in front of the prompt.")] = "",
    raw: Annotated[
        bool, typer.Option("--raw", help="Use the prompt as it stands, without chat template.")
    ] = False,
    max_tokens: Annotated[int, typer.Option(help="End after this many tokens.")] = DEFAULTS.max_tokens,
    min_tokens: Annotated[
        int, typer.Option(help="Do not end before this many tokens.")
    ] = DEFAULTS.min_tokens,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this string; may be given up to 16 times.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Equal seeds give equal answers; drawn and told unless given.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="0 takes the best token each time.")
    ] = DEFAULTS.temperature,
    top_p: Annotated[
        float, typer.Option(help="Keep the best tokens up to this probability.")
    ] = DEFAULTS.top_p,
    top_k: Annotated[int, typer.Option(help="Keep this many tokens; 0 is off.")] = DEFAULTS.top_k,
    min_p: Annotated[
        float, typer.Option(help="Keep tokens with this share of the best one's probability; 0 is off.")
    ] = DEFAULTS.min_p,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: tokens of prompt and answer come less often again.")
    ] = DEFAULTS.repetition_penalty,
    presence_penalty: Annotated[
        float, typer.Option(help="Above 0: tokens of the answer come less often again.")
    ] = DEFAULTS.presence_penalty,
    frequency_penalty: Annotated[
        float, typer.Option(help="Above 0: the more often a token came, the less it comes again.")
    ] = DEFAULTS.frequency_penalty,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on behind the model's end token.")
    ] = False,
    logprobs: Annotated[
        int | None, typer.Option(help="With --json: log-probabilities of the tokens and of the N best.")
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("--k", help="Tokens to draft per round; 0 is plain decoding. Changes no answer."),
    ] = None,
    w: Annotated[int | None, typer.Option("--w", help="Candidates per round. Changes no answer.")] = None,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            help="End a draft when its own confidence falls below this; 0: never. Changes no answer."
        ),
    ] = None,
    min_k: Annotated[
        int | None,
        typer.Option(
            "--min-k", help="Where k is chosen for each round: at least this, or 0. Changes no answer."
        ),
    ] = None,
    max_k: Annotated[
        int | None,
        typer.Option("--max-k", help="Where k is chosen for each round: at most this. Changes no answer."),
    ] = None,
    tpot_target_ms: Annotated[
        int | None, typer.Option(help="Wished time per token behind the first, in milliseconds.")
    ] = None,
    finish_target_ms: Annotated[
        int | None, typer.Option(help="Wished time from the request to the last of --max-tokens.")
    ] = None,
    source: Annotated[Source | None, typer.Option(help="Where drafts come from. Changes no answer.")] = None,
    workload: Annotated[
        str,
        typer.Option(
            help="Label of the kind of text, such as code: experience with drafts is kept apart by it.",
            show_default="guessed from the prompt",
        ),
    ] = "",
    no_store: Annotated[
        bool,
        typer.Option("--no-store", help="Neither read earlier answers and patterns nor keep these."),
    ] = False,
    token_by_token: Annotated[
        bool,
        typer.Option("--token-by-token", help="Show each token by itself, not those of a round together."),
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Generate an answer: its text as it is committed, then how it came about.

    The text goes to standard output and the summary to standard error. The same seed and parameters give the
    same answer, whatever is drafted.
    """
    sampling = SamplingParameters(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
        logprobs=logprobs,
    )
    options = {
        "model": model,
        "sampling": sampling,
        "seed": seed,
        "stop": stop or (),
        "speculation": Speculation(
            k=k,
            w=w,
            source=None if source is None else DraftSource[source.name],
            min_confidence=min_confidence,
            min_k=min_k,
            max_k=max_k,
            tpot_target_ms=tpot_target_ms,
            finish_target_ms=finish_target_ms,
        ),
        "store": not no_store,
        "workload": workload,
        "token_by_token": token_by_token,
    }
    show = _print_json if json_ else _print_stream
    with reported(OutriderError, InputError):
        asked = prompt_of(_read(prompt), system, raw=raw)
        try:
            asyncio.run(show(server, asked, options))
        except InvalidArgument as error:
            fail(explained(error))


def _read(prompt: str) -> str:
    if prompt != "-":
        text, name = prompt, "the prompt"
    else:
        try:
            text, name = sys.stdin.buffer.read().decode(), "standard input"
        except UnicodeDecodeError as error:
            raise InputError(f"standard input is not UTF-8 text ({error}); convert it first") from error
    if not text.strip():
        fail(f"{name} is empty; give some text", EXIT_USAGE)
    return text


async def _print_json(server: str, prompt: Prompt, options: dict[str, Any]) -> None:
    async with OutriderClient(server) as client, aclosing(client.generate(prompt, **options)) as events:
        completion: Completion = await collect(events)
    with_logprobs = options["sampling"].logprobs is not None
    print(json.dumps(as_json(completion, with_logprobs=with_logprobs), ensure_ascii=False))


async def _print_stream(server: str, prompt: Prompt, options: dict[str, Any]) -> None:
    clean = _cleaner(is_terminal=sys.stdout.isatty())
    sent_s = time.monotonic()
    pace: Pace | None = None
    final: Final | None = None
    try:
        async with OutriderClient(server) as client, aclosing(client.generate(prompt, **options)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    pace = _next_pace(pace, time.monotonic() - sent_s, len(event.token_ids))
                    print(clean(event.text), end="", flush=True)
                else:
                    final = event
    finally:
        if pace is not None:  # whatever follows begins on a line of its own
            print(flush=True)
    if final is not None:
        print(as_text(final, pace), file=sys.stderr)


def _next_pace(pace: Pace | None, now_s: float, num_tokens: int) -> Pace | None:
    if not num_tokens:
        return pace
    if pace is None:
        return Pace(first_s=now_s, last_s=now_s, num_first=num_tokens, num_tokens=num_tokens)
    return Pace(pace.first_s, now_s, pace.num_first, pace.num_tokens + num_tokens)


def _cleaner(*, is_terminal: bool) -> Callable[[str], str]:
    """On a terminal a model's control characters would be commands; in a file they are its text."""
    if not is_terminal:
        return str
    controls = {*range(32), *range(127, 160)} - set(map(ord, "\n\t"))
    shown = dict.fromkeys(controls, "\N{REPLACEMENT CHARACTER}")
    return lambda text: text.translate(shown)
