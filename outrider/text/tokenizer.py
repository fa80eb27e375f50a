"""Text to ids and back, with the `tokenizers` library."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import tokenizers

from outrider.text.vocabulary import InvalidTokenizer, vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Tokenizer:
    """One model's tokenizer. Immutable, and safe to share between requests."""

    def __init__(self, tokenizer_json: bytes) -> None:
        """Raises InvalidTokenizer when the file cannot be read."""
        tokens = vocabulary(tokenizer_json)
        try:
            self._library = tokenizers.Tokenizer.from_str(tokenizer_json.decode())
        except Exception as error:  # the library raises bare Exception
            raise InvalidTokenizer(f"tokenizer.json cannot be read: {error}") from error
        # Settings for training batches that some files carry; a prompt is neither cut nor padded.
        self._library.no_truncation()
        self._library.no_padding()
        special = {
            token_id for token_id, token in self._library.get_added_tokens_decoder().items() if token.special
        }
        self._text_ids = frozenset(tokens.keys() - special)
        self._byte_ids = _byte_ids(tokens, json.loads(tokenizer_json).get("decoder"))

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Turn text into ids; `add_special_tokens` puts those around it that the model expects.

        A rendered chat has them already.
        """
        return tuple(self._library.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into text; special and unknown ids have none. Broken UTF-8 shows as U+FFFD."""
        return self._library.decode(list(ids), skip_special_tokens=True)

    def has_text(self, token_id: int) -> bool:
        """Tell whether the id can show in a text: neither special nor unknown."""
        return token_id in self._text_ids

    def is_byte(self, token_id: int) -> bool:
        """Tell whether the id stands for one byte of a run that only its end makes valid or not."""
        return token_id in self._byte_ids


def _byte_ids(tokens: dict[int, str], decoder: object) -> frozenset[int]:
    if "ByteFallback" not in json.dumps(decoder):
        return frozenset()
    return frozenset(token_id for token_id, token in tokens.items() if _BYTE_TOKEN.fullmatch(token))
