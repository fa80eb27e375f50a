"""The candidate cache: the answer that a prompt was given before, and that of a prompt much like it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.store.access import Access
from outrider.store.backend import Put
from outrider.store.coding import pack, unpack
from outrider.store.namespace import Namespace

SHINGLE = 6
"""Tokens of a run whose presence says what a prompt is like."""
SKETCH = 24
"""Smallest hashes of a prompt's runs that are kept."""
ALIKE = 6
"""So many of them in common make two prompts alike: about a quarter of their runs."""
MAX_ANSWER = 8192
MIN_ANSWER = 4
TTL_S = 7 * 24 * 3600
_FORM = b"\x01"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An answer to draft from."""

    answer: tuple[int, ...]
    # Whether it was given to this very prompt.
    exact: bool


class CandidateCache:
    """Answers by their prompt, and prompts by a sketch of what is in them.

    The sketch holds the smallest hashes of all runs of six tokens (min-wise hashing, Broder 1997): prompts
    that share most of their text share most of them, wherever they differ, at the end or in five lines of a
    file.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def find(self, namespace: Namespace, prompt: Sequence[int]) -> Candidate | None:
        """The answer to this prompt, or to the one most like it. Never raises."""
        exact = _digest(prompt)
        sketch = _sketch(prompt)
        keys = [_answer_key(namespace, exact), *(_sketch_key(namespace, each) for each in sketch)]
        stored, *pointers = await self._access.values(keys)
        answer = _decoded(stored)
        if answer is None:
            votes = Counter(
                pointer for pointer in pointers if pointer is not None and len(pointer) == len(exact)
            )
            likest = max(votes, key=lambda pointer: (votes[pointer], pointer), default=None)
            if likest is not None and votes[likest] >= min(ALIKE, len(sketch)):
                (stored,) = await self._access.values([_answer_key(namespace, likest)])
                answer = _decoded(stored)
            exact = b""
        self._access.tally.looked_up(found=answer is not None)
        return Candidate(answer, exact=bool(exact)) if answer else None

    def remember(self, namespace: Namespace, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Keep an answer; returns at once, it is written soon. Very short and very long ones are not kept."""
        if not MIN_ANSWER <= len(answer) <= MAX_ANSWER:
            return
        digest = _digest(prompt)
        self._access.write(
            [
                Put(_answer_key(namespace, digest), _FORM + pack(answer), TTL_S),
                *(Put(_sketch_key(namespace, each), digest, TTL_S) for each in _sketch(prompt)),
            ]
        )


def _digest(prompt: Sequence[int]) -> bytes:
    return hashlib.blake2b(pack(prompt), digest_size=16).digest()


def _answer_key(namespace: Namespace, digest: bytes) -> str:
    return f"{namespace.prefix}:c:{digest.hex()}"


def _sketch_key(namespace: Namespace, value: int) -> str:
    return f"{namespace.prefix}:s:{value:016x}"


def _decoded(stored: bytes | None) -> tuple[int, ...] | None:
    if stored is None or stored[:1] != _FORM or len(stored) > 1 + 4 * MAX_ANSWER:
        return None
    return unpack(stored[1:]) or None


def _sketch(prompt: Sequence[int]) -> list[int]:
    """The smallest hashes of the prompt's runs, smallest first."""
    if len(prompt) < SHINGLE:
        return []
    ids = np.asarray(prompt, dtype=np.uint64)
    mixed = np.zeros(len(ids) - SHINGLE + 1, dtype=np.uint64)
    for at in range(SHINGLE):
        # splitmix64's finalizer, over the run so far and the next id.
        mixed = (mixed ^ ids[at : at + len(mixed)]) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return [int(each) for each in np.unique(mixed)[:SKETCH]]
