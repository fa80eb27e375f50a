"""The sampling parameters of one request, with the ranges that they may take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

GREEDY_BELOW = 1e-5
"""A temperature under this is greedy: dividing by it would only overflow."""

BAN_BIAS = -100.0
"""The lowest logit bias; an id that carries it never appears."""

MAX_TEMPERATURE = 100.0
MAX_TOP_LOGPROBS = 20


class InvalidParameter(ValueError):
    """A sampling parameter is out of range; `message` names the field, the value and the fix."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How the next token is chosen. The defaults sample the model's own distribution.

    Building one checks nothing; call `validate` on whatever came from outside.
    """

    temperature: float = 1.0
    """Divides the logits; under 1e-5 the best logit wins (greedy)."""
    top_k: int = 0
    """Keep exactly this many ids; 0 is off."""
    top_p: float = 1.0
    """Keep the smallest set of best ids whose probability reaches this; 1 is off."""
    min_p: float = 0.0
    """Keep ids with at least this fraction of the best id's probability; 0 is off."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of ids in prompt + output; 1 is off."""
    presence_penalty: float = 0.0
    """Subtracted once from the logits of ids in the output."""
    frequency_penalty: float = 0.0
    """Subtracted from the logits of ids in the output as often as they stand there."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(id, amount added to its logit); -100 bans the id."""
    min_tokens: int = 0
    """No id that would end the answer is chosen before the output has this many tokens."""
    max_tokens: int = 256
    """The output ends at this many tokens."""
    stop_ids: tuple[int, ...] = ()
    """Ids that end the answer, beside the model's own end of sequence."""
    ignore_eos: bool = False
    """Treat the model's end of sequence as an ordinary id."""
    logprobs: int | None = None
    """None is off; n reports the chosen token's log-probability and the n best ids'."""

    @property
    def greedy(self) -> bool:
        """True where no noise is drawn and the best processed logit wins."""
        return self.temperature < GREEDY_BELOW

    @property
    def needs_counts(self) -> bool:
        """True where a choice depends on the ids that stand in prompt or output."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def unfiltered(self) -> bool:
        """True where top-k, top-p and min-p are all off, so that every id stays in the draw."""
        return self.top_k == 0 and self.top_p >= 1.0 and self.min_p == 0.0

    def validate(self) -> None:
        """Check every field's range.

        Raises:
            InvalidParameter: for the first field that is out of range.
        """
        _check_number("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        _check_integer("top_k", self.top_k, 0)
        _check_number("top_p", self.top_p, 0.0, 1.0, above_low=True)
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_number("repetition_penalty", self.repetition_penalty, 0.0, math.inf, above_low=True)
        _check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        self._check_bias()
        _check_integer("max_tokens", self.max_tokens, 1)
        _check_integer("min_tokens", self.min_tokens, 0)
        if self.min_tokens > self.max_tokens:
            raise InvalidParameter(
                "min_tokens",
                f"min_tokens is {self.min_tokens}, more than max_tokens ({self.max_tokens}); "
                "lower min_tokens or raise max_tokens",
            )
        for token in self.stop_ids:
            _check_integer("stop_ids", token, 0)
        if self.logprobs is not None:
            _check_integer("logprobs", self.logprobs, 0, MAX_TOP_LOGPROBS)

    def validate_ids(self, vocab_size: int) -> None:
        """Check that every biased or stopping id is one of the `vocab_size` real ids.

        Raises:
            InvalidParameter: naming the first id that is not, because it could have no effect.
        """
        named = [("logit_bias", token) for token, _ in self.logit_bias]
        named += [("stop_ids", token) for token in self.stop_ids]
        for field, token in named:
            if token >= vocab_size:
                raise InvalidParameter(
                    field, f"{field} names id {token}, but the last id is {vocab_size - 1}; remove the id"
                )

    def _check_bias(self) -> None:
        seen: set[int] = set()
        for token, bias in self.logit_bias:
            _check_integer("logit_bias", token, 0)
            _check_number("logit_bias", bias, BAN_BIAS, -BAN_BIAS)
            if token in seen:
                raise InvalidParameter(
                    "logit_bias", f"logit_bias names id {token} twice; give each id one bias"
                )
            seen.add(token)


def _check_number(field: str, value: Any, low: float, high: float, *, above_low: bool = False) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and low <= value <= high and not (above_low and value == low):
        return
    if math.isinf(high):
        wanted = f"a finite number above {low:g}"
    elif above_low:
        wanted = f"a number above {low:g} and at most {high:g}"
    else:
        wanted = f"a number from {low:g} to {high:g}"
    raise InvalidParameter(field, f"{field} is {value!r}; give {wanted}")


def _check_integer(field: str, value: Any, low: int, high: int | None = None) -> None:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and value >= low and (high is None or value <= high):
        return
    wanted = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
    raise InvalidParameter(field, f"{field} is {value!r}; give {wanted}")
