"""Greedy answers of real processes are those of Hugging Face `generate`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from outrider.client import OutriderClient
from outrider.runtime.checkpoints import checkpoint_folder
from outrider.sampling.parameters import SamplingParameters
from outrider.wire.generation import DraftSource, Speculation
from outrider.wire.inference import PromptIds
from tests.support.cluster import Cluster, Process

NUM_TOKENS = 128
# Two ids that score closer than this may be ordered differently by another order of summation.
TIE = 1e-3
PROMPTS = [
    "def quicksort(items):\n",
    "import numpy as np\n\nclass Matrix:\n    def __init__(self",
    "#include <stdio.h>\n\nint main(void) {\n",
    "function debounce(callback, delay) {\n",
    "SELECT customers.name, COUNT(orders.id) FROM",
    "# Read a CSV file and print the mean of each column\nimport csv\n",
    "fn fibonacci(n: u64) -> u64 {\n",
    '{"name": "Ada Lovelace", "born": 1815, "fields": [',
    '[{"id": 1, "city": "Paris", "country": "France"}, {"id": 2,',
    '{"type": "object", "properties": {"name": {"type": "string"}, "age":',
    '{"error": null, "result": {"items": [{"sku": "A-1", "price": 9.99},',
    "users:\n  - name: Ada\n    role: admin\n  - name:",
    "Once upon a time, in a village by the sea,",
    "The three laws of thermodynamics are",
    "Dear colleagues,\n\nI would like to thank you for",
    "Photosynthesis is the process by which",
    "Translate to French: The cat sleeps on the sofa.\n",
    "Q: Why is the sky blue?\nA:",
    "1. Preheat the oven to 180 degrees.\n2.",
    "In 1969, the first humans landed on the Moon.",
]


@pytest.fixture(scope="module")
def weights(smollm2_path: Path) -> Path:
    return checkpoint_folder(str(smollm2_path), "float32", print)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, weights: Path) -> Iterator[Process]:
    with Cluster(tmp_path_factory.mktemp("reference")) as cluster:
        validator = cluster.validator(weights, "--dtype", "float32").start()
        yield cluster.front([validator], [])


async def _answers(gateway: Process, prompts: list[list[int]]) -> list[list[int]]:
    sampling = SamplingParameters(temperature=0.0, max_tokens=NUM_TOKENS)
    speculation = Speculation(k=4, source=DraftSource.NGRAM)
    async with OutriderClient(gateway.address) as client:
        answers = await asyncio.gather(
            *(
                client.complete(PromptIds(tuple(ids)), sampling=sampling, speculation=speculation)
                for ids in prompts
            )
        )
    assert sum(answer.final.counters.accepted for answer in answers) > 0
    return [list(answer.token_ids) for answer in answers]


def _generate(model: PreTrainedModel, prompts: list[list[int]], end_id: int) -> list[list[int]]:
    """Greedy, with no setting of the model's own; prompts are padded on the left. Ends behind the end id."""
    width = max(map(len, prompts))
    ids = torch.tensor([[end_id] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    neutral = GenerationConfig(
        max_new_tokens=NUM_TOKENS, do_sample=False, eos_token_id=end_id, pad_token_id=end_id
    )
    with torch.inference_mode():
        generated: torch.Tensor = model.generate(ids, attention_mask=mask, generation_config=neutral)  # type: ignore[operator]  # a mixin whose type mypy loses
        rows = generated[:, width:].tolist()
    return [row[: row.index(end_id) + 1] if end_id in row else row for row in rows]


def _margin(model: PreTrainedModel, prefix: list[int], one: int, other: int) -> float:
    with torch.inference_mode():
        logits = model(torch.tensor([prefix])).logits[0, -1]
    return abs(float(logits[one] - logits[other]))


async def test_c01_c02_greedy_ids_of_twenty_prompts_are_those_of_generate(
    gateway: Process, weights: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(weights)
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    # What a checkpoint asks for by default is not part of a neutral comparison.
    model.generation_config = GenerationConfig()
    prompts = [tokenizer.encode(text) for text in PROMPTS]
    answers = await _answers(gateway, prompts)
    expected = await asyncio.to_thread(_generate, model, prompts, int(tokenizer.eos_token_id))
    ties = []
    for prompt, answer, reference in zip(prompts, answers, expected, strict=True):
        if answer == reference:
            continue
        place = next(i for i, (x, y) in enumerate(zip(answer, reference, strict=False)) if x != y)
        margin = _margin(model, prompt + answer[:place], answer[place], reference[place])
        assert margin < TIE, f"differs at {place}: {answer[place]} and {reference[place]}, {margin=:.2e}"
        ties.append(margin)
    assert len(ties) <= 1
