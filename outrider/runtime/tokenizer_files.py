"""The tokenizer of a checkpoint folder, as a worker hands it to gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import AutoTokenizer

from outrider.runtime.checkpoints import read_json
from outrider.runtime.errors import ModelError
from outrider.text.vocabulary import InvalidTokenizer, fingerprint, vocabulary
from outrider.wire.worker import TokenizerFiles

if TYPE_CHECKING:
    from pathlib import Path

_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def read_tokenizer(folder: Path) -> tuple[TokenizerFiles, int]:
    """Read tokenizer.json, chat template and special tokens.

    Returns:
        The files, and the number of ids that the tokenizer knows (its greatest id plus one).

    Raises:
        ModelError: no tokenizer, or one that cannot be expressed as tokenizer.json.
    """
    path = folder / "tokenizer.json"
    content = path.read_bytes() if path.is_file() else _converted(folder)
    try:
        tokens = vocabulary(content)
    except InvalidTokenizer as error:
        raise ModelError(f"the tokenizer in {folder} cannot be used: {error}") from error
    if not tokens:
        raise ModelError(f"the tokenizer in {folder} has no tokens")
    config = read_json(folder / "tokenizer_config.json")
    special = {role: text for role in _ROLES if (text := _text_of(config.get(role)))}
    files = TokenizerFiles(
        tokenizer_json=content,
        chat_template=_chat_template(folder, config),
        special_tokens=special,
        tokenizer_fingerprint=fingerprint(tokens),
    )
    return files, max(tokens) + 1


def _converted(folder: Path) -> bytes:
    """Older checkpoints have other tokenizer files; transformers turns most of them into the common form."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return bytes(tokenizer.backend_tokenizer.to_str(), "utf-8")
    except Exception as error:  # many kinds, one meaning
        raise ModelError(
            f"{folder} has no tokenizer.json, and no tokenizer that can be turned into one"
        ) from error


def _chat_template(folder: Path, config: dict[str, object]) -> str:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        # Several named ones: the default is the one for chat.
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else ""


def _text_of(token: Any) -> str:
    """Special tokens are written as a string, or as an object with `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""
