"""The answer as it grows: from committed ids to text, up to a stop string."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.text.detokenize import Detokenizer
from outrider.text.stops import Found, StopFinder
from outrider.wire.inference import Delta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.sampling.acceptance import TokenLogprobs
    from outrider.text.tokenizer import Tokenizer


class Answer:
    """Text, length and end of one answer. The gateway commits nothing: it may only end an answer earlier.

    End ids are committed ids without text. The text of the first `min_tokens` tokens is not searched for stop
    strings, so that a caller who asked for that many receives them.
    """

    __slots__ = ("_detokenizer", "_end_ids", "_finder", "_min_tokens", "num_tokens", "stop")

    def __init__(
        self, tokenizer: Tokenizer, *, end_ids: frozenset[int], stops: Sequence[str], min_tokens: int
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._finder = StopFinder(stops)
        self._end_ids = end_ids
        self._min_tokens = min_tokens
        self.num_tokens = 0
        """Tokens kept so far."""
        self.stop: str | None = None
        """The stop string that ended the answer."""

    def push(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> Delta:
        """Take the tokens of one round; those behind the last token of a stop string are not kept."""
        text: list[str] = []
        num_kept = 0
        for token_id in tokens:
            if self.ended():
                break
            num_kept += 1
            self.num_tokens += 1
            if token_id not in self._end_ids:
                text.append(self._text_of(token_id))
        return Delta("".join(text), tuple(tokens[:num_kept]), tuple(logprobs[:num_kept]))

    def ended(self) -> bool:
        """Tell whether a stop string ended the answer."""
        return self.stop is not None

    def flush(self) -> str:
        """Give the text that was held back: no token follows."""
        if self.ended():
            return ""
        return self._finder.flush() + self._detokenizer.flush()

    def _text_of(self, token_id: int) -> str:
        piece = self._detokenizer.push(token_id)
        if self.num_tokens <= self._min_tokens:
            return piece
        found: Found = self._finder.push(piece, self._detokenizer.pending)
        self.stop = found.stop
        return found.text
