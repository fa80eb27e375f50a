"""Decoder layers of the Llama family with fewer and larger operations than transformers' own.

One matrix product for query, key and value, one for gate and up, and the rotary embedding of query and key
together. A small model's step is mostly the cost of starting operations, so that their number counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn
from torch.nn.functional import silu
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

    from outrider.runtime.attention import AttentionStep


_LAYERS = (LlamaDecoderLayer, Qwen2DecoderLayer)


def can_fuse(model: PreTrainedModel) -> bool:
    """Whether all layers are Llama's or Qwen2's own; subclasses of them compute something else."""
    layers = getattr(model.base_model, "layers", None)
    return (
        isinstance(layers, nn.ModuleList)
        and all(type(layer) in _LAYERS for layer in layers)
        and model.config.hidden_act == "silu"
    )


def fuse_layers(model: PreTrainedModel, store: Callable[[nn.Module], None]) -> None:
    """Replace the decoder layers, in place, if they can be fused.

    `store` is called with each new layer, before the next one is made: weights that are copied into another
    form then lie in memory twice for one layer at a time.
    """
    if not can_fuse(model):
        return
    layers = cast("nn.ModuleList", model.base_model.layers)
    for index, layer in enumerate(layers):
        fused = layers[index] = FusedDecoderLayer(cast("LlamaDecoderLayer", layer))
        store(fused)


def fused_layers(model: PreTrainedModel) -> list[FusedDecoderLayer]:
    """The layers of a model that `fuse_layers` has changed; empty for others."""
    layers = list(getattr(model.base_model, "layers", ()))
    return layers if all(isinstance(layer, FusedDecoderLayer) for layer in layers) else []


class FusedDecoderLayer(nn.Module):
    """The same function as the layer that it takes the weights of, up to rounding."""

    def __init__(self, layer: LlamaDecoderLayer | Qwen2DecoderLayer) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.layer = int(attention.layer_idx)
        self.head_dim = int(attention.head_dim)
        self.num_kv_heads = attention.k_proj.out_features // self.head_dim
        self.scale = float(attention.scaling)
        self.window: int | None = getattr(attention, "sliding_window", None)
        self.qkv = _joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = attention.o_proj
        self.gate_up = _joined(mlp.gate_proj, mlp.up_proj)
        self.down = mlp.down_proj
        self.attention_norm = RootMeanSquareNorm(layer.input_layernorm)
        self.mlp_norm = RootMeanSquareNorm(layer.post_attention_layernorm)

    @property
    def linears(self) -> tuple[nn.Module, ...]:
        """Its matrix products."""
        return self.qkv, self.out, self.gate_up, self.down

    def forward(
        self,
        hidden: torch.Tensor,
        *,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        outrider_step: AttentionStep,
        **_: object,
    ) -> torch.Tensor:
        """[1, num_rows, hidden_size] -> the same shape. What is not named is of no concern to the layer."""
        qkv = self.qkv(self.attention_norm(hidden))[0].unflatten(-1, (-1, self.head_dim))
        cos, sin = outrider_step.rotation(*position_embeddings)
        turned = qkv[:, : -self.num_kv_heads]
        first, second = turned.chunk(2, dim=-1)
        turned = torch.addcmul(turned * cos, torch.cat((second, first), dim=-1), sin)
        keys, values = turned[:, -self.num_kv_heads :], qkv[:, -self.num_kv_heads :]
        attended = outrider_step.attend(
            self.layer,
            turned[:, : -self.num_kv_heads],
            torch.stack((keys, values), dim=1),
            scale=self.scale,
            window=self.window,
        )
        hidden = hidden + self.out(attended.flatten(1)[None])
        gate, up = self.gate_up(self.mlp_norm(hidden)).chunk(2, dim=-1)
        result: torch.Tensor = hidden + self.down(silu(gate) * up)
        return result


class RootMeanSquareNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, in float32 up to the last product (arXiv 1910.07467)."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.weight: torch.Tensor = norm.weight  # type: ignore[assignment]  # a norm's weight is a tensor
        self.eps = float(norm.variance_epsilon)  # type: ignore[arg-type]  # Llama's and Qwen2's have one

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., hidden_size] -> the same shape and type."""
        length = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True, dtype=torch.float32)
        scale = length.square_().mul_(1 / hidden.shape[-1]).add_(self.eps).rsqrt_()
        result: torch.Tensor = (hidden * scale).to(hidden.dtype) * self.weight
        return result


def _joined(*linears: nn.Linear) -> nn.Linear:
    """One layer that gives the outputs of several, side by side."""
    joined = nn.Linear(1, 1, bias=linears[0].bias is not None)
    joined.in_features = linears[0].in_features
    joined.out_features = sum(linear.out_features for linear in linears)
    joined.weight = _frozen([linear.weight for linear in linears])
    if linears[0].bias is not None:
        joined.bias = _frozen([linear.bias for linear in linears])
    return joined


def _frozen(tensors: list[torch.Tensor]) -> nn.Parameter:
    return nn.Parameter(torch.cat([tensor.detach() for tensor in tensors]), requires_grad=False)
