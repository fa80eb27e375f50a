"""Hugging Face `generate` on the same weights: plain, assisted by the draft, and with prompt lookup.

python -m bench.peers.hugging_face TARGET [DRAFT]

A question is {"mode": "plain" | "assisted" | "lookup", "prompts": [[id, ...], ...], "num_tokens": N,
"fixed": bool}; several prompts are padded on the left and run as one batch. `fixed` goes on past the end id.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation.streamers import BaseStreamer

from bench.peers.serving import serve
from outrider.runtime.checkpoints import checkpoint_folder, read_json

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

LOOKUP_TOKENS = 10
"""As the library's documentation uses it."""


class _FirstToken(BaseStreamer):
    """Notes when the first tokens behind the prompt came."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        self._seen_prompt = False

    def put(self, value: torch.Tensor) -> None:
        if self._seen_prompt and self.first_s is None:
            self.first_s = time.perf_counter()
        self._seen_prompt = True

    def end(self) -> None:
        """Nothing to flush."""


class HuggingFace:
    """The models, as the library itself runs them."""

    def __init__(self, target: str, draft: str | None) -> None:
        folder = checkpoint_folder(target, "bfloat16", _say)
        self._target = _load(folder)
        self._draft = _load(checkpoint_folder(draft, "bfloat16", _say)) if draft else None
        self._end_ids = _end_ids(folder, self._target)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ids without the prompt, per prompt up to the end id; seconds to the first token and to the end."""
        prompts: list[list[int]] = question["prompts"]
        rows, mask = _padded(prompts)
        options: dict[str, Any] = {}
        if question["mode"] == "assisted":
            if self._draft is None:
                raise ValueError("there is no draft model")
            options["assistant_model"] = self._draft
        elif question["mode"] == "lookup":
            options["prompt_lookup_num_tokens"] = LOOKUP_TOKENS
        settings = GenerationConfig(  # type: ignore[no-untyped-call]  # as it is published
            max_new_tokens=question["num_tokens"],
            min_new_tokens=question["num_tokens"] if question["fixed"] else None,
            do_sample=False,
            eos_token_id=self._end_ids or None,
            pad_token_id=0,
        )
        streamer = _FirstToken()
        start = time.perf_counter()
        generate: Any = self._target.generate
        with torch.inference_mode():
            output = generate(
                rows, attention_mask=mask, generation_config=settings, streamer=streamer, **options
            )
        end = time.perf_counter()
        answers = [self._cut(row[rows.shape[1] :].tolist()) for row in output]
        return {"ids": answers, "first_s": (streamer.first_s or end) - start, "total_s": end - start}

    def _cut(self, ids: list[int]) -> list[int]:
        ends = [place for place, token in enumerate(ids) if token in self._end_ids]
        return ids[: ends[0] + 1] if ends else ids


def _load(folder: Path) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True)
    model.train(mode=False)
    # Chat models bring sampling settings of their own; here everything is greedy and bare.
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]  # as it is published
    return model


def _end_ids(folder: Path, model: PreTrainedModel) -> list[int]:
    found: set[int] = set()
    for value in (
        model.config.get_text_config().eos_token_id,
        read_json(folder / "generation_config.json").get("eos_token_id"),
    ):
        found.update(value if isinstance(value, list) else [value] if isinstance(value, int) else [])
    return sorted(found)


def _padded(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, int64 [num_prompts, longest], padded on the left."""
    longest = max(map(len, prompts))
    rows = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return rows, mask


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Load, then answer until standard input ends."""
    target, *draft = sys.argv[1:]
    peer = HuggingFace(target, draft[0] if draft else None)
    about = {"transformers": transformers.__version__, "threads": torch.get_num_threads()}
    serve(about, peer.answer)


if __name__ == "__main__":
    main()
