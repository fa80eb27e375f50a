"""The tokens of one session, with the counts that the penalties need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from outrider.sampling.arrays import Ids


class TokenHistory:
    """Prompt + output of one session; moves forward and back with exact counts.

    What lies past `prompt_length` is output. Ids from `vocab_size` on are kept as tokens and left out
    of the counts, since they have no logit to change.
    """

    def __init__(self, tokens: Sequence[int], *, prompt_length: int, vocab_size: int, counted: bool) -> None:
        """Take a copy of `tokens`; `counted` says whether the counts will be asked for.

        Raises:
            ValueError: on a negative id, or when `prompt_length` is not within `tokens`.
        """
        if not 0 <= prompt_length <= len(tokens):
            raise ValueError(f"prompt_length is {prompt_length}, but there are {len(tokens)} tokens")
        if tokens and min(tokens) < 0:
            raise ValueError(f"token ids must not be negative; got {min(tokens)}")
        self._tokens = list(tokens)
        self._prompt_length = prompt_length
        self._vocab_size = vocab_size
        self._counted = counted
        self._counts: dict[int, int] = {}
        prompt = self._real(tokens[:prompt_length]) if counted else ()
        self._prompt = frozenset(prompt)
        self._prompt_ids = np.array(sorted(self._prompt), dtype=np.int64)
        for token in tokens[prompt_length:]:
            self._count(token, 1)

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def num_output(self) -> int:
        """How many tokens stand past the prompt."""
        return len(self._tokens) - self._prompt_length

    @property
    def last(self) -> int | None:
        """The last token, or None when there is none."""
        return self._tokens[-1] if self._tokens else None

    @property
    def tokens(self) -> tuple[int, ...]:
        """A copy of prompt + output."""
        return tuple(self._tokens)

    def append(self, token: int) -> None:
        """Add one token to the output.

        Raises:
            ValueError: when the id is negative.
        """
        if token < 0:
            raise ValueError(f"token ids must not be negative; got {token}")
        self._tokens.append(token)
        self._count(token, 1)

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens; the others leave no trace in the counts.

        Raises:
            ValueError: when `length` would cut the prompt or lies past the end.
        """
        if not self._prompt_length <= length <= len(self._tokens):
            raise ValueError(
                f"cannot truncate to {length}: the prompt has {self._prompt_length} tokens "
                f"and the session {len(self._tokens)}"
            )
        for token in self._tokens[length:]:
            self._count(token, -1)
        del self._tokens[length:]

    def seen(self) -> Ids:
        """Each id of prompt or output once: int64 [num_seen]."""
        new = [token for token in self._counts if token not in self._prompt]
        return np.concatenate((self._prompt_ids, np.array(new, dtype=np.int64)))

    def output_counts(self) -> tuple[Ids, Ids]:
        """Each id of the output once, and how often it stands there: int64 [n], int64 [n]."""
        return (
            np.fromiter(self._counts.keys(), dtype=np.int64, count=len(self._counts)),
            np.fromiter(self._counts.values(), dtype=np.int64, count=len(self._counts)),
        )

    def _real(self, tokens: Iterable[int]) -> list[int]:
        return [token for token in tokens if token < self._vocab_size]

    def _count(self, token: int, change: int) -> None:
        if not self._counted or token >= self._vocab_size:
            return
        count = self._counts.get(token, 0) + change
        if count:
            self._counts[token] = count
        else:
            del self._counts[token]
