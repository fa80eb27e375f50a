"""The choices of one session: which token the target puts at its next position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from outrider.sampling.arrays import FloatRow, Values
from outrider.sampling.filters import Kept, log_normaliser, scaled
from outrider.sampling.gumbel_max import Scored, best_of_all, best_of_kept
from outrider.sampling.history import TokenHistory
from outrider.sampling.noise import PURPOSE_TOKEN, noise_key
from outrider.sampling.parameters import SamplingParameters
from outrider.sampling.processing import all_finite_or_masked, filtered, processed
from outrider.sampling.ranking import best

NUM_RIVALS = 8
"""Scores over which the confidence in the best of them is taken: the next ones add next to nothing."""


class Ranked(NamedTuple):
    """One id that a draft may offer."""

    token: int
    logprob: float
    """Under the processed distribution; under greedy decoding that is the softmax of the processed logits."""
    confidence: float
    """0 to 1: how sure it is that a target much like this model chooses this id; see `TokenSampler.rank`."""


class NonFiniteLogits(ArithmeticError):
    """A row from which nothing can be chosen: it has a NaN or +inf, or every id in it is masked."""


class TokenSampler:
    """Chooses, ranks and remembers the tokens of one session.

    A choice is a function of the logits, the parameters, the seed, the choice index and the tokens so
    far; calling `choose` or `rank` changes nothing.
    """

    def __init__(
        self,
        parameters: SamplingParameters,
        *,
        seed: int,
        choice: int = 0,
        tokens: Sequence[int],
        prompt_length: int,
        end_ids: frozenset[int],
        vocab_size: int,
    ) -> None:
        """Take up a session at any point of its life.

        Args:
            parameters: validated sampling parameters.
            seed: the request's seed, 0 to 2^64 - 1.
            choice: index among the `n` answers of one request.
            tokens: prompt + output so far.
            prompt_length: how many of `tokens` are the prompt.
            end_ids: ids that end the answer: end of sequence unless `ignore_eos`, plus `stop_ids`.
            vocab_size: number of real ids; logits may be wider, and ids past this one are never kept.

        Raises:
            ValueError: when the tokens, prompt length, seed, choice or vocabulary size make no sense.
        """
        if vocab_size < 1:
            raise ValueError(f"vocab_size is {vocab_size}; it must be at least 1")
        noise_key(seed, choice, PURPOSE_TOKEN, 0)  # a seed or choice out of range shows here, not later
        self._parameters = parameters
        self._seed = seed
        self._choice = choice
        self._end_ids = end_ids
        self._vocab_size = vocab_size
        self._history = TokenHistory(
            tokens, prompt_length=prompt_length, vocab_size=vocab_size, counted=parameters.needs_counts
        )

    @property
    def parameters(self) -> SamplingParameters:
        """The session's sampling parameters."""
        return self._parameters

    @property
    def end_ids(self) -> frozenset[int]:
        """The ids that end the answer."""
        return self._end_ids

    @property
    def vocab_size(self) -> int:
        """The number of real ids."""
        return self._vocab_size

    @property
    def position(self) -> int:
        """Index in prompt + output of the token that is chosen next."""
        return len(self._history)

    @property
    def num_output(self) -> int:
        """How many tokens stand past the prompt."""
        return self._history.num_output

    @property
    def last_token(self) -> int | None:
        """The last token of prompt + output, or None when there is none."""
        return self._history.last

    @property
    def tokens(self) -> tuple[int, ...]:
        """A copy of prompt + output so far."""
        return self._history.tokens

    def choose(self, logits: FloatRow) -> int:
        """The target's token at `position`.

        Args:
            logits: unprocessed logits of the position before it, float32 [width >= vocab_size].

        Raises:
            NonFiniteLogits: on a NaN or +inf in the row, or when no id is left to choose.
            ValueError: when the row has the wrong shape.
        """
        row = self._processed(logits)
        if self._parameters.greedy:
            return int(row.argmax())
        return int(self._best(row, 1).ids[0])

    def rank(self, logits: FloatRow, width: int) -> list[Ranked]:
        """The best ids by the score that `choose` maximises, best first.

        For a draft that offers several candidates: the first is what `choose` returns. Ids that were
        not kept never appear, so fewer than `width` may come back. Under greedy decoding the score is
        the processed logit, and temperature, top-k, top-p and min-p have no part in it.

        Confidence: the target adds the *same* noise to logits that differ a little, so what tells how
        sure a choice is, is its lead in score and not its probability: an unlikely id that the noise
        lifts far above the others is safe. It is the softmax of temperature * score, which are logits
        with the noise in their own unit, over the best few ids. Without noise that is the softmax of the
        logits, which is what greedy decoding takes, over all ids.

        Args:
            logits: unprocessed logits, float32 [width >= vocab_size].
            width: how many ids are wanted, at least 1.

        Raises:
            NonFiniteLogits: as `choose`.
            ValueError: when `width` is below 1 or the row has the wrong shape.
        """
        if width < 1:
            raise ValueError(f"width is {width}; it must be at least 1")
        row = self._processed(logits)
        if self._parameters.greedy:
            return self._rank_greedy(row, width)
        temperature, num_scores = self._parameters.temperature, max(width, NUM_RIVALS)
        if self._parameters.unfiltered:
            scored = best_of_all(row, temperature, self._key(), num_scores)
            values = row[scored.ids].astype(np.float64) / temperature
            normaliser = log_normaliser(row, temperature)
        else:
            kept = filtered(row, self._parameters)
            scored = best_of_kept(kept, self._key(), num_scores)
            values = kept.values[np.searchsorted(kept.ids, scored.ids)]
            normaliser = kept.log_normaliser()
        leads = np.exp(temperature * (scored.scores - scored.scores[0]))
        confidences = leads / leads.sum()
        return _ranked(scored.ids[:width].tolist(), values[:width] - normaliser, confidences)

    def kept(self, logits: FloatRow) -> Kept:
        """The processed distribution at `position`: the ids that may be drawn, with scaled logits.

        Under greedy decoding these are all ids that are not masked, at a temperature of 1.

        Raises:
            NonFiniteLogits: as `choose`.
        """
        row = self._processed(logits)
        if self._parameters.greedy:
            return scaled(row, np.arange(row.size, dtype=np.int64), 1.0)
        return filtered(row, self._parameters)

    def append(self, token: int) -> None:
        """Move one position forward.

        Raises:
            ValueError: when the id is negative.
        """
        self._history.append(token)

    def truncate(self, length: int) -> None:
        """Move back to the first `length` tokens of prompt + output; later ones leave no trace.

        Raises:
            ValueError: when `length` would cut the prompt or lies past the end.
        """
        self._history.truncate(length)

    def _processed(self, logits: FloatRow) -> FloatRow:
        """Masks, bias and penalties applied to the real ids' logits, checked: float32 [vocab_size]."""
        logits = np.asarray(logits, dtype=np.float32)
        if logits.ndim != 1 or logits.size < self._vocab_size:
            raise ValueError(f"logits have shape {logits.shape}; wanted [width >= {self._vocab_size}]")
        if not all_finite_or_masked(logits):
            raise NonFiniteLogits(f"the logits for position {self.position} hold a NaN or +inf")
        row = processed(logits[: self._vocab_size], self._parameters, self._history, self._end_ids)
        if math.isinf(float(row.max())):
            raise NonFiniteLogits(f"no id is left to choose at position {self.position}: all are masked")
        return row

    def _rank_greedy(self, row: FloatRow, width: int) -> list[Ranked]:
        ids = best(row, width)
        ids = ids[row[ids] > -np.inf]
        logprobs = row[ids].astype(np.float64) - log_normaliser(row)
        return _ranked(ids.tolist(), logprobs, np.exp(logprobs))

    def _best(self, row: FloatRow, width: int) -> Scored:
        if self._parameters.unfiltered:
            return best_of_all(row, self._parameters.temperature, self._key(), width)
        return best_of_kept(filtered(row, self._parameters), self._key(), width)

    def _key(self) -> int:
        return noise_key(self._seed, self._choice, PURPOSE_TOKEN, self.position)


def _ranked(ids: list[int], logprobs: Values, confidences: Values) -> list[Ranked]:
    return [Ranked(*each) for each in zip(ids, logprobs.tolist(), confidences.tolist(), strict=False)]
