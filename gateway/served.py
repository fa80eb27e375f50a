"""The model that the validators serve, as far as text needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from outrider.text.chat import ChatTemplate, InvalidChat
from outrider.text.tokenizer import Tokenizer
from outrider.wire.worker import ModelInfo, TokenizerFiles


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model with what turns its ids into text and back. A request keeps the one it began with."""

    info: ModelInfo
    tokenizer: Tokenizer
    template: ChatTemplate | None
    template_problem: str = ""
    """Why there is no template, when the model has one that can not be used."""

    @classmethod
    def load(cls, info: ModelInfo, files: TokenizerFiles) -> Self:
        """Build from a validator's files. Takes up to seconds for a large vocabulary: call it in a thread.

        Raises InvalidTokenizer. A template that can not be used is no error here, since prompts need none.
        """
        tokenizer = Tokenizer(files.tokenizer_json)
        if not files.chat_template:
            return cls(info, tokenizer, None)
        try:
            return cls(info, tokenizer, ChatTemplate(files.chat_template, files.special_tokens))
        except InvalidChat as error:
            return cls(info, tokenizer, None, str(error))


def identity_of(info: ModelInfo) -> tuple[str, str, str]:
    """What must change before tokenizer and template have to be fetched again."""
    return info.model, info.weight_fingerprint, info.tokenizer_fingerprint
