"""The shared noise: a pure function of (seed, choice, purpose, position, id).

Whoever knows the five numbers draws the same noise, in any order and any number of times, so neither
rejected tokens nor neighbours in a batch can shift it. Adding standard Gumbel noise to the logits and
taking the argmax samples their softmax (the Gumbel-max theorem); a draft that adds the *same* noise to
its own logits tends to pick what the target will pick (Daliri, Musco, Suresh, arXiv 2408.07978).

`docs/noise.md` states the algorithm for foreign implementations; `noise_vectors.json`, beside this
module, holds test vectors for it.
"""

from __future__ import annotations

import functools
import hashlib
import struct

import numpy as np
import numpy.typing as npt

from outrider.sampling.arrays import Bits, Values

PURPOSE_TOKEN = "token"  # noqa: S105 - a token of text, not a secret
"""The purpose of the noise that chooses the next token."""

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_BELOW_ONE = 1.0 - 2.0**-53

# Words hashed at a time, so that the block and its scratch stay in the second-level cache: hashing
# 151,936 ids in one go is bound by memory and takes about four times as long.
_BLOCK = 32_768


def noise_key(seed: int, choice: int, purpose: str, position: int) -> int:
    """The 64-bit key of the noise for one position.

    It is blake2b (RFC 7693; no key, salt or personalisation) with a digest of 8 bytes, read as a
    little-endian unsigned integer, over these bytes:

    ====== ===== ==========================================================
    offset bytes what
    ====== ===== ==========================================================
    0      8     seed, unsigned, little-endian
    8      4     choice, unsigned, little-endian
    12     4     position, unsigned, little-endian
    16     1     length of purpose in bytes
    17     n     purpose, ASCII (the next token's noise has `token`)
    ====== ===== ==========================================================

    Args:
        seed: the request's seed, 0 to 2^64 - 1.
        choice: index among the `n` answers of one request, 0 to 2^32 - 1.
        purpose: what the noise is for, 1 to 255 ASCII characters.
        position: 0-based index in prompt + output of the token that is chosen, 0 to 2^32 - 1.

    Raises:
        ValueError: when a number or the purpose is outside its range.
    """
    for name, value, bits in (("seed", seed, 64), ("choice", choice, 32), ("position", position, 32)):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{name} is {value}; it must be from 0 to 2^{bits} - 1")
    if not purpose.isascii() or not 1 <= len(purpose) <= 255:
        raise ValueError(f"purpose is {purpose!r}; it must have 1 to 255 ASCII characters")
    message = struct.pack("<QIIB", seed, choice, position, len(purpose)) + purpose.encode("ascii")
    return int.from_bytes(hashlib.blake2b(message, digest_size=8).digest(), "little")


def uniform_bits(key: int, ids: npt.ArrayLike) -> Bits:
    """64 uniform bits per id: `splitmix64(key + (id + 1) * 0x9E3779B97F4A7C15)`, modulo 2^64.

    splitmix64 is the finaliser of Steele, Lea and Flood's generator (OOPSLA 2014).

    Args:
        key: the position's key, from `noise_key`.
        ids: non-negative integers of any shape.

    Returns:
        uint64, in the shape of `ids`.
    """
    given = np.asarray(ids)
    # A copy of one dimension at least: numpy warns of overflow on scalars but wraps arrays in silence.
    words = np.array(given, dtype=np.uint64, ndmin=1)
    words += np.uint64(1)
    words *= _GAMMA
    words += np.uint64(key)
    _finalise(words, np.empty_like(words))
    return words.reshape(given.shape)


def vocabulary_bits(key: int, vocab_size: int) -> Bits:
    """`uniform_bits(key, range(vocab_size))`, faster: uint64 [vocab_size]."""
    steps = _id_steps(vocab_size)
    words = np.empty(vocab_size, dtype=np.uint64)
    scratch = np.empty(min(_BLOCK, vocab_size), dtype=np.uint64)
    for start in range(0, vocab_size, _BLOCK):
        block = words[start : start + _BLOCK]
        np.add(steps[start : start + _BLOCK], np.uint64(key), out=block)
        _finalise(block, scratch[: block.size])
    return words


def gumbel(bits: Bits) -> Values:
    """Standard Gumbel noise of hash bits: `-ln(-ln u)` with `u = ((h >> 11) + 0.5) * 2^-53`.

    The one h in 2^53 whose u rounds to 1 takes the largest float64 below 1 instead, so that the noise
    is finite: it lies in [-3.62, 36.74].

    Args:
        bits: uint64 of any shape, from `uniform_bits`.

    Returns:
        float64 in the shape of `bits`.
    """
    u = (bits >> np.uint64(11)).astype(np.float64)
    u += 0.5
    u *= 2.0**-53
    np.minimum(u, _BELOW_ONE, out=u)
    return np.asarray(-np.log(-np.log(u)), dtype=np.float64)


def _finalise(words: Bits, scratch: Bits) -> None:
    """Replace each word by its splitmix64 finaliser; `scratch` has the same shape."""
    np.right_shift(words, np.uint64(30), out=scratch)
    np.bitwise_xor(words, scratch, out=words)
    np.multiply(words, _MIX_1, out=words)
    np.right_shift(words, np.uint64(27), out=scratch)
    np.bitwise_xor(words, scratch, out=words)
    np.multiply(words, _MIX_2, out=words)
    np.right_shift(words, np.uint64(31), out=scratch)
    np.bitwise_xor(words, scratch, out=words)


@functools.lru_cache(maxsize=4)
def _id_steps(vocab_size: int) -> Bits:
    """`(id + 1) * 0x9E3779B97F4A7C15` for every id: the part of the hash that no key changes."""
    steps = np.arange(1, vocab_size + 1, dtype=np.uint64) * _GAMMA
    steps.flags.writeable = False
    return steps
