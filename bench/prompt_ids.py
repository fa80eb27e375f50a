"""The ids of a chat, as the gateway makes them: for peers, which have no gateway."""

from __future__ import annotations

from collections.abc import Callable

from outrider.runtime.checkpoints import checkpoint_folder
from outrider.runtime.tokenizer_files import read_tokenizer
from outrider.text.chat import ChatTemplate
from outrider.text.tokenizer import Tokenizer


def encoder(model: str) -> Callable[[str], tuple[int, ...]]:
    """What turns a user's text into ids, the model's template applied."""
    files, _ = read_tokenizer(checkpoint_folder(model, "bfloat16", lambda _: None))
    tokenizer = Tokenizer(files.tokenizer_json)
    template = ChatTemplate(files.chat_template, files.special_tokens)

    def encode(text: str) -> tuple[int, ...]:
        return tokenizer.encode(template.render([("user", text)]), add_special_tokens=False)

    return encode
