"""Which model families can keep the exact promise, judged by their configuration.

A position's logits must follow from its own prefix alone. That fails where the forward looks at the rest of
the batch (mixtures of experts with capacity or sorted dispatch, RoPE whose frequencies follow from the
longest position present) or keeps a state that can not be rewound (recurrent and linear-attention layers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from transformers import PreTrainedConfig

# Frequencies that are fixed when the model is loaded.
_STATIC_ROPE = frozenset({"default", "linear", "llama3", "yarn"})
_ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention"})
_EXPERT_FIELDS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def obstacles_to_exactness(config: PreTrainedConfig) -> list[str]:
    """Why a model of this configuration can only be served as `near_tie`; empty when it may be exact."""
    text = config.get_text_config()
    found = [*_rope_obstacles(text), *_expert_obstacles(text)]
    return list(dict.fromkeys(found))


def obstacles_to_serving(config: PreTrainedConfig) -> list[str]:
    """Why a model of this configuration can not be served at all."""
    text = config.get_text_config()
    found = []
    if config.is_encoder_decoder:
        found.append("it is an encoder-decoder model, and only decoder-only models are served")
    foreign = sorted(set(getattr(text, "layer_types", None) or ()) - _ATTENTION_LAYERS)
    if foreign:
        found.append(
            f"its layers of type {', '.join(foreign)} keep a state that can not be rewound after a rejection"
        )
    if getattr(text, "use_bidirectional_attention", False):
        found.append("its attention is not causal")
    return found


def _rope_obstacles(config: PreTrainedConfig) -> Iterator[str]:
    parameters = getattr(config, "rope_parameters", None) or {}
    per_layer = [value for value in parameters.values() if isinstance(value, dict)]
    for rope in per_layer or [parameters]:
        kind = _rope_type(rope)
        if kind not in _STATIC_ROPE:
            yield f"its RoPE of type {kind!r} depends on the longest position in the batch"


def _rope_type(rope: Mapping[str, Any]) -> str:
    return str(rope.get("rope_type", rope.get("type", "default")))


def _expert_obstacles(config: PreTrainedConfig) -> Iterator[str]:
    for name in _EXPERT_FIELDS:
        if (getattr(config, name, 0) or 0) > 1:
            count = getattr(config, name)
            yield f"it is a mixture of experts ({name}={count}), whose expert batches mix sessions"
