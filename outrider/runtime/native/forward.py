"""The compiled forward behind the interface of `outrider.runtime.forward`."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from outrider.runtime.decoder import fused_layers

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from outrider.runtime.compiling import NativeLibrary
    from outrider.runtime.kv import KVPool
    from outrider.runtime.layout import StepLayout
    from outrider.runtime.native.weights import NativeLinear

_Pointer = ctypes.c_void_p
_Int = ctypes.c_int64


class _Linear(ctypes.Structure):
    _fields_ = (("weights", _Pointer), ("bias", _Pointer), ("inputs", _Int), ("outputs", _Int))

    @classmethod
    def of(cls, linear: NativeLinear) -> _Linear:
        bias = linear.bias
        return cls(
            linear.tiles.data_ptr(),
            bias.data_ptr() if bias is not None else None,
            linear.in_features,
            linear.out_features,
        )


class _Layer(ctypes.Structure):
    _fields_ = (
        ("attention_norm", _Pointer),
        ("mlp_norm", _Pointer),
        ("qkv", _Linear),
        ("out", _Linear),
        ("gate_up", _Linear),
        ("down", _Linear),
        ("keys", _Pointer),
        ("values", _Pointer),
    )


class _Shape(ctypes.Structure):
    _fields_ = (
        *(
            (name, _Int)
            for name in ("hidden", "num_heads", "num_kv_heads", "head_dim", "intermediate", "num_layers")
        ),
        ("eps", ctypes.c_float),
        ("scale", ctypes.c_float),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        ("num_rows", _Int),
        ("num_wanted", _Int),
        *(
            (name, _Pointer)
            for name in (
                "hidden",
                "cos",
                "sin",
                "positions",
                "slots",
                "key_slots",
                "key_starts",
                "wanted",
                "logits",
                "finite",
            )
        ),
    )


class NativeForward:
    """A model whose layers were replaced by `store_native`."""

    def __init__(self, model: PreTrainedModel, pool: KVPool, library: NativeLibrary) -> None:
        """Raises `MemoryError` when there is no room for the threads' work space."""
        self._model = model
        self._pool = pool
        self._embedding = model.get_input_embeddings()
        self._rotary = cast("nn.Module", model.base_model.rotary_emb)
        self._run = library.outrider_decoder_forward
        layers = fused_layers(model)
        head: NativeLinear = model.lm_head
        self._width = head.out_features
        # What the compiled code points into.
        self._norms = [
            cast("torch.Tensor", norm.weight).detach().float().contiguous()
            for norm in (
                *(norm for layer in layers for norm in (layer.attention_norm, layer.mlp_norm)),
                cast("nn.Module", model.base_model.norm),
            )
        ]
        first = layers[0]
        shape = _Shape(
            hidden=first.qkv.in_features,
            num_heads=first.out.in_features // first.head_dim,
            num_kv_heads=first.num_kv_heads,
            head_dim=first.head_dim,
            intermediate=first.down.in_features,
            num_layers=len(layers),
            eps=first.attention_norm.eps,
            scale=first.scale,
        )
        described = (_Layer * len(layers))()
        for index, layer in enumerate(layers):
            keys, values = pool.storage(index)
            described[index] = _Layer(
                self._norms[2 * index].data_ptr(),
                self._norms[2 * index + 1].data_ptr(),
                *(_Linear.of(cast("NativeLinear", linear)) for linear in layer.linears),
                keys.data_ptr(),
                values.data_ptr(),
            )
        self._decoder = library.outrider_decoder_new(
            ctypes.byref(shape),
            described,
            _Pointer(self._norms[-1].data_ptr()),
            ctypes.byref(_Linear.of(head)),
            torch.get_num_threads(),
        )
        if not self._decoder:
            raise MemoryError("no memory for the compiled decoder")
        weakref.finalize(self, library.outrider_decoder_delete, self._decoder)

    @torch.inference_mode()
    def __call__(self, layout: StepLayout) -> tuple[np.ndarray, np.ndarray]:
        """Run a step; see `outrider.runtime.forward.Forward`."""
        positions = torch.from_numpy(layout.positions)
        hidden = self._embedding(torch.from_numpy(layout.tokens)).float()
        cos, sin = self._rotary(hidden, positions[None])
        key_starts = np.empty(layout.num_rows, dtype=np.int64)
        start = 0
        for group in layout.groups:
            key_starts[group.rows] = start
            start += len(group.key_slots)
        key_slots = np.concatenate([group.key_slots for group in layout.groups])
        logits = np.empty((len(layout.wanted), self._width), dtype=np.float32)
        finite = np.empty(layout.num_rows, dtype=np.bool_)
        cos, sin = cos.contiguous(), sin.contiguous()
        step = _Step(
            layout.num_rows,
            len(layout.wanted),
            hidden.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            layout.positions.ctypes.data,
            layout.slots.ctypes.data,
            key_slots.ctypes.data,
            key_starts.ctypes.data,
            layout.wanted.ctypes.data,
            logits.ctypes.data,
            finite.ctypes.data,
        )
        if self._run(self._decoder, ctypes.byref(step)):
            raise MemoryError(f"no memory for a step of {layout.num_rows} rows")
        return logits, finite
