"""From a model's name to a runtime that is ready to step."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from outrider.runtime.attention import IMPLEMENTATION
from outrider.runtime.checkpoints import checkpoint_folder, read_json
from outrider.runtime.compiling import NoNativeLibrary
from outrider.runtime.cost import model_cost
from outrider.runtime.decoder import fuse_layers
from outrider.runtime.dtypes import DTYPES
from outrider.runtime.errors import ModelError, OutOfPages, UnsupportedModel
from outrider.runtime.families import obstacles_to_exactness, obstacles_to_serving
from outrider.runtime.fingerprints import weight_fingerprint
from outrider.runtime.forward import TorchForward
from outrider.runtime.kv import KVPool, KVShape
from outrider.runtime.mapped import release_pages
from outrider.runtime.native import (
    NativeForward,
    native_library,
    obstacle_to_native,
    store_native,
)
from outrider.runtime.numerics import numerics_id, self_test
from outrider.runtime.pages import PAGE_SIZE
from outrider.runtime.runtime import Runtime
from outrider.runtime.tokenizer_files import read_tokenizer
from outrider.runtime.weights import CAREFUL, QUANTIZED, store_linears
from outrider.wire.worker import Exactness, ModelInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

    from outrider.runtime.compiling import NativeLibrary
    from outrider.runtime.forward import Forward

DEFAULT_KV_BUDGET_BYTES = 1 << 30

_log = structlog.get_logger(__name__)

# Its bars would fill a server's log; `progress` says what takes long.
transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # as it is published


def load_runtime(
    model: str,
    *,
    dtype: str = "bfloat16",
    device: str = "cpu",
    kv_budget_bytes: int | None = None,
    num_threads: int | None = None,
    allow_near_tie: bool = False,
    served_name: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> Runtime:
    """Load a model and prove what it can promise. Takes seconds; a GGUF file's first time up to a minute.

    Args:
        model: hub id, safetensors folder, GGUF file, or name of a fetched model.
        dtype: of weights, activations and KV: one of `DTYPES`. int8 and int4 are the weights' alone; all else
            is bfloat16 then.
        device: "cpu", "cuda" or "cuda:N".
        kv_budget_bytes: memory for KV pages; 1 GiB unless given. Rounded down to whole pages.
        num_threads: CPU threads of the whole process; part of the numerics id. None leaves torch's choice.
        allow_near_tie: serve a model that can not keep the exact promise, marked so, instead of refusing it.
        served_name: the name to show; the model's own unless given.
        progress: told in words what takes long.

    Raises:
        ModelError: not found, damaged, not understood, or too large for the budget.
    """
    target = _device(device)
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    elements = "bfloat16" if dtype in QUANTIZED else dtype
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    folder = checkpoint_folder(model, elements, progress)
    config = _config(folder)
    obstacles = _refuse_or_list(model, config, allow_near_tie=allow_near_tie)
    # Before the weights: a missing tokenizer is found at once.
    tokenizer, vocab_size = read_tokenizer(folder)
    progress(f"loading {model}")
    weights = _weights(folder, getattr(torch, elements), target)
    shape = _kv_shape(config, getattr(torch, elements))
    num_pages = (kv_budget_bytes or DEFAULT_KV_BUDGET_BYTES) // shape.page_bytes
    if num_pages < 1:
        raise ModelError(
            f"a KV budget of {kv_budget_bytes} bytes holds no page; one takes {shape.page_bytes} bytes"
        )
    pool = KVPool(shape, num_pages, target)
    forward = _forward(weights, folder, pool, dtype, target)
    runtime = Runtime(forward, pool, num_pages)
    vocab_size = min(vocab_size, config.get_text_config().vocab_size)
    progress(f"testing the arithmetic of {model}")
    try:
        test = self_test(runtime, vocab_size)
        if not test.bitwise and isinstance(forward, TorchForward) and forward.row_counts != CAREFUL:
            forward.row_counts = CAREFUL
            test = self_test(runtime, vocab_size)
    except OutOfPages as error:
        raise ModelError(f"the KV budget is too small for the start-up test: {error}") from error
    bitwise = test.bitwise and not obstacles and target.type == "cpu"
    if not bitwise:
        why = [*obstacles, *(f"other bits {way}" for way in test.differing)] or [
            f"device {target} is not proven yet"
        ]
        _log.warning("outputs may depend on the batch where two ids score almost alike", reasons=why)
    fingerprint = weight_fingerprint(folder, dtype)
    runtime.tokenizer = tokenizer
    runtime.cost = model_cost(weights, shape.page_bytes // PAGE_SIZE)
    runtime.info = ModelInfo(
        model=served_name or _name(model),
        weight_fingerprint=fingerprint,
        tokenizer_fingerprint=tokenizer.tokenizer_fingerprint,
        vocab_size=vocab_size,
        context_length=config.get_text_config().max_position_embeddings,
        numerics_id=numerics_id(fingerprint, dtype, target, test.canary),
        exactness=Exactness.BITWISE if bitwise else Exactness.NEAR_TIE,
        dtype=dtype,
        device=str(target),
        eos_ids=_end_ids(folder, config, vocab_size),
        model_version=secrets.token_hex(8),
        instance_id=secrets.token_bytes(16),
    )
    return runtime


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"device {name!r} is not known; use cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(f"device {name!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices")
    if device.type not in ("cpu", "cuda"):
        raise ModelError(f"device {name!r} is not supported; use cpu, cuda or cuda:N")
    return device


def _config(folder: Path) -> PreTrainedConfig:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except (ValueError, OSError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedModel(f"the configuration in {folder} is not understood: {reason}") from error
    return config


def _refuse_or_list(model: str, config: PreTrainedConfig, *, allow_near_tie: bool) -> list[str]:
    fatal = obstacles_to_serving(config)
    if fatal:
        raise UnsupportedModel(f"{model} can not be served: {'; '.join(fatal)}")
    obstacles = obstacles_to_exactness(config)
    if obstacles and not allow_near_tie:
        raise UnsupportedModel(
            f"{model} can not keep the exact promise: {'; '.join(obstacles)}. "
            "Set --allow-near-tie (OUTRIDER_ALLOW_NEAR_TIE=true) to serve it marked as near_tie"
        )
    return obstacles


def _weights(folder: Path, elements: torch.dtype, device: torch.device) -> PreTrainedModel:
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=elements,
            attn_implementation=IMPLEMENTATION,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
    except (ValueError, OSError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"the model in {folder} cannot be loaded: {reason}") from error
    model.train(mode=False)
    torch.nn.Module.to(model, device)
    return model


def _forward(model: PreTrainedModel, folder: Path, pool: KVPool, dtype: str, device: torch.device) -> Forward:
    """Store the weights as the fastest code that serves them wants them."""
    library = _native_library(model) if dtype == "int4" and device.type == "cpu" else None

    def store(part: nn.Module) -> None:
        if library is None:
            store_linears(part, dtype, device)
        else:
            store_native(part)
        release_pages(folder)

    fuse_layers(model, store)
    store(model)
    return TorchForward(model, pool) if library is None else NativeForward(model, pool, library)


def _native_library(model: PreTrainedModel) -> NativeLibrary | None:
    problem = obstacle_to_native(model)
    try:
        if problem is None:
            return native_library()
    except NoNativeLibrary as error:
        problem = str(error)
    _log.info("int4 runs on torch's kernels, which are slower than the compiled forward", reason=problem)
    return None


def _kv_shape(config: PreTrainedConfig, dtype: torch.dtype) -> KVShape:
    text = config.get_text_config()
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    num_kv_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    return KVShape(text.num_hidden_layers, num_kv_heads, head_dim, dtype)


def _end_ids(folder: Path, config: PreTrainedConfig, vocab_size: int) -> tuple[int, ...]:
    """End ids of config.json and generation_config.json: chat models often name theirs only in one."""
    found: set[int] = set()
    for value in (
        config.get_text_config().eos_token_id,
        read_json(folder / "generation_config.json").get("eos_token_id"),
    ):
        ids = value if isinstance(value, list) else [value]
        found.update(int(token) for token in ids if isinstance(token, int) and 0 <= token < vocab_size)
    return tuple(sorted(found))


def _name(model: str) -> str:
    """A hub id or the name of a fetched model as it is; of a path only the last part."""
    return Path(model).absolute().name.removesuffix(".gguf") if Path(model).exists() else model
