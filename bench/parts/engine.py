"""The same engine in one process and through the services; what choosing a token costs in a plain step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.configurations import LAYOUTS, PLAIN_LAYOUT, SEED, Configuration
from bench.contest import hold
from bench.deployments import Deployment
from bench.options import Options
from bench.parts.speedup import as_json
from bench.spread import spread
from bench.stage import ONE_PROCESS, Stage
from bench.turns import Subject, Theirs
from outrider.sampling.parameters import SamplingParameters
from outrider.wire.generation import DraftSource, Speculation

K = 8
NUM_SAMPLED, SAMPLED_TOKENS = 3, 48


async def run(stage: Stage, options: Options) -> dict[str, Any]:
    """Plain and with chains of K, each inside and through the services; then sampling at T = 1."""
    with_draft = stage.has_draft
    layout = "drafted" if with_draft else PLAIN_LAYOUT
    await stage.only({PLAIN_LAYOUT, layout})
    plain = Configuration("plain", PLAIN_LAYOUT, Speculation(k=0, source=DraftSource.NONE))
    subjects: list[Subject] = [await stage.ours(plain, LAYOUTS[PLAIN_LAYOUT], options.sampling)]
    deployment = await stage.deployment(options.layouts[layout])
    # Told exactly what the services were told.
    sides = [
        json.dumps(_arguments(deployment, name))
        for name in ("validator", "draft")
        if name in deployment.processes
    ]
    peer = await stage.peer(ONE_PROCESS, *sides, environment=options.layouts[layout].environment)
    if peer is None:
        raise RuntimeError("the engine can not be run in one process")
    subjects.append(Theirs("plain, one process", peer, "plain", stage.encode))
    if with_draft:
        chain = Configuration(f"k={K}", layout, Speculation(k=K, source=DraftSource.MODEL))
        subjects.append(await stage.ours(chain, options.layouts[layout], options.sampling))
        subjects.append(Theirs(f"k={K}, one process", peer, "chain", stage.encode, {"k": K}))
    contest = await hold(
        subjects,
        options.prompts,
        num_tokens=options.num_tokens,
        exact=[subject.name for subject in subjects],
        minutes=options.limit(full=3, short=0.7),
        say=options.say,
    )
    pairs = [("plain, one process", "plain")]
    pairs += [(f"k={K}, one process", f"k={K}")] if with_draft else []
    return {
        "one_process_to_services": {
            other: as_json(spread(one.rate / two.rate for one, two in contest.pairs(ours, other)))
            for ours, other in pairs
        },
        "tok_per_s": {
            name: as_json(spread(turn.rate for turn in contest.of(name))) for name in contest.subjects
        },
        "sampling_share": as_json(
            spread([await _sampling_share(stage, options, n) for n in range(NUM_SAMPLED)])
        ),
    }


async def _sampling_share(stage: Stage, options: Options, number: int) -> float:
    """Of plain steps at T = 1 without filters: the choosing over choosing and model together."""
    peer = await stage.peer(ONE_PROCESS)
    if peer is None:
        raise RuntimeError("the engine can not be run in one process")
    prompt = options.prompts[number % len(options.prompts)]
    question = {
        "mode": "plain",
        "prompts": [list(stage.encode(prompt.text))],
        "num_tokens": SAMPLED_TOKENS,
        "temperature": SamplingParameters().temperature,
        "seed": SEED + number,
    }
    answer = await peer.ask(question)
    return float(answer["choose_s"] / (answer["choose_s"] + answer["step_s"]))


def _arguments(deployment: Deployment, name: str) -> list[str]:
    """The flags that a worker was started with, without those that concern its port."""
    words = Path(f"/proc/{deployment.processes[name]}/cmdline").read_bytes().decode().split("\0")
    return [
        word
        for word in words
        if word.startswith("--") and not word.startswith(("--port", "--ready-file", "--host"))
    ]
