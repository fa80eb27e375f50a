"""Tiny random models with a real tokenizer, as safetensors folders."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = ["<unk>", "<|start|>", "<|end|>"]
END_ID = 2
CONTEXT_LENGTH = 512
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
_CORPUS = [
    "def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n",
    '{"name": "Ada", "born": 1815, "languages": ["English", "French"], "active": true}\n',
    "The river runs past the old mill, and in the evening the lights of the town lie on the water.\n",
    "Grüße aus Köln: äöü ß — 東京は日本の首都です。 🙂🚀 naïve café\n",
]
_SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT_LENGTH,
    "bos_token_id": 1,
    "eos_token_id": END_ID,
    "pad_token_id": END_ID,
    # Wide enough that logits differ clearly, so that greedy output does not fall into a loop.
    "initializer_range": 0.3,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "long_factor": [1.5] * 8,
    "short_factor": [1.0] * 8,
    "original_max_position_embeddings": 256,
}
_FAMILIES: dict[str, tuple[type[PreTrainedConfig], type[PreTrainedModel], dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": False}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": False}),
    "gemma2": (
        Gemma2Config,
        Gemma2ForCausalLM,
        {"query_pre_attn_scalar": 16, "sliding_window": 24, "attn_logit_softcapping": 5.0},
    ),
    "moe": (MixtralConfig, MixtralForCausalLM, {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "longrope": (
        Phi3Config,
        Phi3ForCausalLM,
        {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 256},
    ),
}


def tiny_tokenizer(vocab_size: int = 400) -> Tokenizer:
    """A byte-level BPE tokenizer trained on a few lines; ids 0, 1, 2 are unknown, start and end."""
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def tiny_model(
    folder: Path,
    family: str = "llama",
    *,
    seed: int = 0,
    padded_vocab: int = 0,
    vocab_size: int = 400,
    context_length: int = CONTEXT_LENGTH,
) -> Path:
    """Write a random two-layer model of a family into `folder`, and return it.

    `padded_vocab` is the width of the logits; as wide as the tokenizer unless given. Two models of one seed
    and family have equal weights, whatever their context length.
    """
    tokenizer = tiny_tokenizer(vocab_size)
    config_class, model_class, special = _FAMILIES[family]
    own = {
        "vocab_size": padded_vocab or tokenizer.get_vocab_size(),
        "max_position_embeddings": context_length,
    }
    config = config_class(**{**_SHAPE, **own, **special})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=SPECIAL[0],
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[2],
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)
    return folder


def with_noise(source: Path, folder: Path, *, scale: float, seed: int = 1) -> Path:
    """Copy a checkpoint with Gaussian noise of `scale` times each matrix's own deviation on its weights."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    for path in folder.glob("*.safetensors"):
        generator = torch.Generator().manual_seed(seed)
        tensors = load_file(path)
        for name, tensor in tensors.items():
            if tensor.dim() == 2:  # matrices
                noise = torch.randn(tensor.shape, generator=generator) * tensor.float().std() * scale
                tensors[name] = (tensor.float() + noise).to(tensor.dtype)
        save_file(tensors, path, metadata={"format": "pt"})
    return folder
