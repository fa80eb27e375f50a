"""The sampling maths once more, plain and slow: what the tests compare with.

Python integers and lists, written from the definitions; it shares no code with `outrider.sampling`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from outrider.sampling import SamplingParameters

MASK = (1 << 64) - 1

STEADY: dict[str, Any] = {"deadline": None, "derandomize": True}
"""Settings of every property test here: the same examples on each run, and no clock."""

Model = Callable[[Sequence[int]], np.ndarray]


def noise_key(seed: int, choice: int, purpose: str, position: int) -> int:
    message = (
        seed.to_bytes(8, "little")
        + choice.to_bytes(4, "little")
        + position.to_bytes(4, "little")
        + bytes([len(purpose)])
        + purpose.encode("ascii")
    )
    return int.from_bytes(hashlib.blake2b(message, digest_size=8).digest(), "little")


def noise_bits(key: int, token: int) -> int:
    z = (key + (token + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def gumbel(bits: int) -> float:
    u = min(((bits >> 11) + 0.5) * 2.0**-53, 1.0 - 2.0**-53)
    return -math.log(-math.log(u))


def processed(
    logits: np.ndarray,
    p: SamplingParameters,
    tokens: Sequence[int],
    prompt_length: int,
    end_ids: frozenset[int],
) -> list[float]:
    """Masks, bias and penalties; `logits` holds the real ids only."""
    row = [float(value) for value in logits]
    output = list(tokens[prompt_length:])
    if len(output) < p.min_tokens:
        for token in end_ids:
            row[token] = -math.inf
    for token, bias in p.logit_bias:
        row[token] = -math.inf if bias == -100 else row[token] + bias
    for token in set(tokens):
        penalty = p.repetition_penalty
        row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
    for token in set(output):
        row[token] -= p.presence_penalty + output.count(token) * p.frequency_penalty
    return row


def kept(row: Sequence[float], p: SamplingParameters) -> dict[int, float]:
    """id -> scaled logit of the ids that may be drawn."""
    ranked = sorted(
        (token for token, x in enumerate(row) if x > -math.inf), key=lambda token: (-row[token], token)
    )
    if p.top_k:
        ranked = ranked[: p.top_k]
    scaled = {token: row[token] / p.temperature for token in ranked}
    largest = scaled[ranked[0]]
    if p.top_p < 1:
        weights = [math.exp(scaled[token] - largest) for token in ranked]
        reached = 0.0
        for length, weight in enumerate(weights, start=1):
            reached += weight
            if reached >= p.top_p * sum(weights):
                ranked = ranked[:length]
                break
    ranked = [token for token in ranked if math.exp(scaled[token] - largest) >= p.min_p]
    return {token: scaled[token] for token in ranked}


def distribution(row: Sequence[float], p: SamplingParameters) -> np.ndarray:
    """The probability of each id: float64 [vocab]."""
    probabilities = np.zeros(len(row))
    for token, value in kept(row, p).items():
        probabilities[token] = math.exp(value)
    return np.asarray(probabilities / probabilities.sum())


def choose(
    logits: np.ndarray,
    p: SamplingParameters,
    *,
    seed: int,
    choice: int,
    tokens: Sequence[int],
    prompt_length: int,
    end_ids: frozenset[int],
) -> int:
    row = processed(logits, p, tokens, prompt_length, end_ids)
    if p.temperature < 1e-5:
        return max(range(len(row)), key=lambda token: (row[token], -token))
    key = noise_key(seed, choice, "token", len(tokens))
    scores = {token: value + gumbel(noise_bits(key, token)) for token, value in kept(row, p).items()}
    return max(scores, key=lambda token: (scores[token], -token))


def decode(
    model: Model,
    p: SamplingParameters,
    prompt: Sequence[int],
    *,
    seed: int,
    choice: int = 0,
    end_ids: frozenset[int],
    vocab_size: int,
    max_length: int,
) -> list[int]:
    """The whole answer, one token at a time."""
    tokens = list(prompt)
    while len(tokens) < max_length and len(tokens) - len(prompt) < p.max_tokens:
        logits = model(tokens)[:vocab_size]
        token = choose(
            logits, p, seed=seed, choice=choice, tokens=tokens, prompt_length=len(prompt), end_ids=end_ids
        )
        tokens.append(token)
        if token in end_ids:
            break
    return tokens[len(prompt) :]


def random_model(vocab_size: int, *, padding: int = 0, salt: int = 0, spread: float = 2.0) -> Model:
    """Logits that depend on every token of the prefix; padding ids get tempting ones."""

    def logits(tokens: Sequence[int]) -> np.ndarray:
        digest = hashlib.blake2b(repr((salt, list(tokens))).encode(), digest_size=8).digest()
        row = np.random.default_rng(int.from_bytes(digest, "little")).normal(0, spread, vocab_size + padding)
        row[vocab_size:] = 50.0
        return row.astype(np.float32)

    return logits


def chi_square_z(observed: np.ndarray, probabilities: np.ndarray) -> float:
    """How many standard deviations too bad the fit is (Wilson and Hilferty's approximation).

    Ids without probability must not have been observed.
    """
    possible = probabilities > 0
    assert observed[~possible].sum() == 0
    expected = probabilities[possible] * observed.sum()
    assert expected.min() >= 5, "too few draws for a chi-square test"
    degrees = int(possible.sum()) - 1
    if degrees == 0:
        return 0.0
    statistic = float((((observed[possible] - expected) ** 2) / expected).sum())
    spread = 2 / (9 * degrees)
    return (math.cbrt(statistic / degrees) - (1 - spread)) / math.sqrt(spread)
