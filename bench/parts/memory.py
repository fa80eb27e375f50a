"""What a validator needs beside its weights, its KV budget and the interpreter with its imports."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE
from math import prod
from pathlib import Path
from typing import Any

from bench.configurations import Layout
from bench.options import Options
from bench.processes import child_environment, memory_bytes
from bench.stage import Stage
from outrider.client import OutriderClient, PromptIds, SamplingParameters, Speculation

KV_MIB = 64
"""Small enough that one prompt writes to every page: memory that was never written to takes no room."""
ANSWER_TOKENS = 4
FIRST_ID, LAST_ID = 1000, 9000
"""Ids that are ordinary text in any vocabulary."""
DTYPE_BYTES = 2


async def run(stage: Stage, options: Options) -> dict[str, Any]:
    """One validator, its KV pool filled by one prompt."""
    layout = Layout("memory", draft=False, environment={"OUTRIDER_KV_BUDGET_MIB": str(KV_MIB)})
    await stage.only({layout.name})
    deployment = await stage.deployment(layout)
    pid = deployment.processes["validator"]
    loaded = memory_bytes(pid, "VmRSS")
    length = await _fill(await stage.client(layout))
    options.say(f"validator: one prompt of {length} tokens fills a KV pool of {KV_MIB} MiB")
    resident, peak = memory_bytes(pid, "VmRSS"), memory_bytes(pid)
    if loaded is None or resident is None or peak is None:
        raise RuntimeError("this system does not tell the memory of a process")
    interpreter = await _interpreter()
    from outrider.runtime.checkpoints import checkpoint_folder  # loads torch

    weights = weight_bytes(checkpoint_folder(stage.target, "bfloat16", options.say))
    known = weights + (KV_MIB << 20) + interpreter
    return {
        "weights_bytes": weights,
        "kv_budget_bytes": KV_MIB << 20,
        "interpreter_bytes": interpreter,
        "loaded_bytes": loaded,
        "resident_bytes": resident,
        # Of these, pages of files, which the system takes back when it needs room.
        "file_pages_bytes": memory_bytes(pid, "RssFile"),
        "peak_bytes": peak,
        "beyond_bytes": resident - known,
        "peak_beyond_bytes": peak - known,
    }


def weight_bytes(folder: Path) -> int:
    """Bytes of the checkpoint's tensors in a type of two bytes, read from the headers of its files."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shapes = (each["shape"] for name, each in header.items() if name != "__metadata__")
        total += sum(prod(shape) for shape in shapes) * DTYPE_BYTES
    return total


async def _fill(client: OutriderClient) -> int:
    (model,) = await client.list_models()
    draw = random.Random(0)  # noqa: S311  # any ids will do
    ids = tuple(draw.randint(FIRST_ID, LAST_ID) for _ in range(model.context_length - ANSWER_TOKENS))
    sampling = SamplingParameters(temperature=0.0, max_tokens=ANSWER_TOKENS)
    await client.complete(PromptIds(ids), sampling=sampling, speculation=Speculation(k=0))
    return len(ids)


async def _interpreter() -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.interpreter", stdout=PIPE, env=child_environment({})
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"bench.interpreter ended with exit code {process.returncode}")
    return int(output)
