"""GGUF files, converted once: their weights in the role's dtype as safetensors in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from outrider.models import cache_dir
from outrider.runtime.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

_MAGIC = b"GGUF"
# Part of the key: raise it when the conversion changes, and old folders are not used any more.
_FORMAT = 1


def converted(path: Path, dtype: str, progress: Callable[[str], None]) -> Path:
    """The folder that `path` was converted to, now or before.

    Args:
        path: the GGUF file.
        dtype: "float32", "bfloat16" or "float16".
        progress: told before the conversion, which takes from seconds to a minute.

    Raises:
        ModelError: not a GGUF file, or a damaged one.
    """
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ModelError(f"{path} is not a GGUF file (it does not start with 'GGUF')")
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    folder = cache_dir() / "converted" / f"{digest[:32]}-{dtype}-v{_FORMAT}"
    if folder.is_dir():
        return folder
    progress(f"converting {path.name} to {dtype} (once; kept in {folder})")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".converting-") as temporary:
        target = Path(temporary) / "model"
        _convert(path, target, dtype)
        try:
            # Whole or not at all: another process may be converting the same file.
            os.rename(target, folder)  # noqa: PTH104  # Path.rename says the same, less plainly
        except OSError:
            if not folder.is_dir():
                raise
            shutil.rmtree(target, ignore_errors=True)
    return folder


def _convert(path: Path, target: Path, dtype: str) -> None:
    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**source)
        model = AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
    except Exception as error:  # the readers below raise whatever a damaged file makes them meet
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{path} cannot be read; it may be truncated or damaged: {reason}") from error
    # What is saved is an ordinary dense model.
    model.config.__dict__.pop("quantization_config", None)
    model.to(getattr(torch, dtype)).save_pretrained(target)
    tokenizer.save_pretrained(target)
