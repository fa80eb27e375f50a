"""From what the operator names (hub id, folder, GGUF file, fetched model) to a folder of safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.models import MODELS, resolve
from outrider.runtime.errors import ModelError
from outrider.runtime.gguf_conversion import converted

if TYPE_CHECKING:
    from collections.abc import Callable

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]


def checkpoint_folder(model: str, dtype: str, progress: Callable[[str], None]) -> Path:
    """Find, fetch or convert the weights that `model` names.

    Args:
        model: name of a fetched model, path of a folder or GGUF file, or hub id; looked up in this order.
        dtype: the role's dtype; a GGUF file is converted once for each.
        progress: told in words what takes long.

    Returns:
        A folder with config.json, safetensors files and a tokenizer.

    Raises:
        ModelError: nothing there, or not in a format that is safe to load.
    """
    path = Path(resolve(model)) if model in MODELS else Path(model).expanduser()
    if path.is_dir():
        _check_folder(path)
        return path
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(
                f"{path} is neither a folder nor a .gguf file; name a safetensors folder or a GGUF file"
            )
        return converted(path, dtype, progress)
    if path.suffix == ".gguf" or model.startswith((".", "/", "~")) or model.count("/") != 1:
        known = ", ".join(sorted(MODELS))
        raise ModelError(
            f"model {model!r} is not a file, a folder, a hub id (owner/name) or a known model ({known})"
        )
    return _from_hub(model, progress)


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json; name a folder that holds a whole model")
    if any(folder.glob("*.safetensors")):
        return
    if any(True for pattern in _PICKLES for _ in folder.glob(pattern)):
        raise ModelError(
            f"{folder} holds only pickled weights, which can run code; convert them to safetensors"
        )
    raise ModelError(f"{folder} has no *.safetensors file")


def _from_hub(model: str, progress: Callable[[str], None]) -> Path:
    from huggingface_hub import snapshot_download  # slow to import, and rarely needed
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    progress(f"fetching {model} from the hub")
    try:
        folder = Path(snapshot_download(model, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"model {model!r} cannot be had from the hub, and no such folder exists: {reason}"
        ) from error
    _check_folder(folder)
    return folder


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON object; empty when there is no such file. Raises `ModelError` when it is damaged."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    return content if isinstance(content, dict) else {}
