"""Decoding token by token, so that the pieces joined are the decoding of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.text.tokenizer import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """The text of one growing list of ids.

    What a token adds depends on its neighbours: a character may span tokens, and decoders treat the first
    token of a text in their own way. So each step decodes a window that begins at least one visible token
    before the new one, and gives only what no later token can change:

    * U+FFFD at the end may be the beginning of a character; it is held back until it is decided;
    * a run of byte tokens (`<0xE4>`) is decoded as a whole, and one bad byte spoils all of it, so the run is
      held back to its end. `pending` shows meanwhile what it would be if it ended here.
    """

    __slots__ = ("_boundary", "_given", "_pending", "_tokenizer", "_window")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._given = 0  # characters of the window's text that were given out
        self._boundary = 0  # window index behind the last id at which all text was given out
        self._pending = ""

    @property
    def pending(self) -> str:
        """Whole characters that are decoded, but may still change, behind the text given so far."""
        return self._pending

    def push(self, token_id: int) -> str:
        """Take the next id and give the text that became certain; it may be empty."""
        if not self._tokenizer.has_text(token_id):
            return ""
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window)
        whole = text.rstrip(_REPLACEMENT)
        if self._tokenizer.is_byte(token_id):
            self._pending = whole[self._given :]
            return ""
        self._pending = ""
        piece = whole[self._given :]
        self._given += len(piece)
        if len(whole) == len(text):
            self._advance(text)
        return piece

    def flush(self) -> str:
        """Give what was held back: the list of ids ends here."""
        piece = self._tokenizer.decode(self._window)[self._given :]
        self._given += len(piece)
        self._pending = ""
        return piece

    def _advance(self, text: str) -> None:
        """Drop the window's ids before the last boundary, if the rest decodes as it did behind them."""
        rest = self._window[self._boundary :]
        kept = self._tokenizer.decode(rest)
        if self._boundary and kept and text.endswith(kept):
            self._window = rest
            self._given = len(kept)
        self._boundary = len(self._window)
