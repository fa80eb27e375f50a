"""The pattern cache: what followed a run of tokens, in all sessions of a namespace, with counts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.store.access import Access
from outrider.store.backend import Count, Counts, Drop, Write
from outrider.store.coding import pack, unpack
from outrider.store.namespace import Namespace

SHORTEST, LONGEST = 2, 8
"""Tokens of a context."""
CONTINUED = 16
"""Tokens of a continuation."""
MAX_CONTINUATIONS = 16
"""Of one context; a reader that finds more drops the rarest."""
LEAST_SHARE = 0.3
"""A continuation ends where fewer of the sessions that came so far went on alike."""
TTL_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Continuation:
    """What is expected next."""

    tokens: tuple[int, ...] = ()
    # Tokens of the context that it is known from; 0: there is none.
    match_length: int = 0


class PatternCache:
    """Contexts of 2 to 8 tokens, each with the continuations that were seen behind it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def lookup(self, namespace: Namespace, context: Sequence[int], k: int) -> Continuation:
        """At most k tokens that followed the longest context that is known; one round trip. Never raises.

        Args:
            namespace: whose patterns.
            context: the text's last tokens; the last 8 count.
            k: at least 1.
        """
        lengths = range(min(LONGEST, len(context)), SHORTEST - 1, -1)
        keys = [_key(namespace, context[len(context) - length :]) for length in lengths]
        if not keys:
            return Continuation()
        for length, key, counts in zip(lengths, keys, await self._access.counts(keys), strict=True):
            tokens = _likeliest(counts, k)
            if len(counts) > MAX_CONTINUATIONS:
                rarest = sorted(counts, key=counts.__getitem__)[: len(counts) - MAX_CONTINUATIONS // 2]
                self._access.write([Drop(key, tuple(rarest))])
            if tokens:
                self._access.tally.looked_up(found=True)
                return Continuation(tokens, length)
        self._access.tally.looked_up(found=False)
        return Continuation()

    def learn(self, namespace: Namespace, tokens: Sequence[int], start: int, end: int) -> None:
        """Remember what follows the contexts that end before each position from `start` up to `end`.

        Returns at once; it is written soon.
        """
        writes: list[Write] = []
        for position in range(max(start, SHORTEST), end):
            continuation = pack(tokens[position : position + CONTINUED])
            for length in range(SHORTEST, min(LONGEST, position) + 1):
                key = _key(namespace, tokens[position - length : position])
                writes.append(Count(key, continuation, 1, TTL_S))
        self._access.write(writes)


def _key(namespace: Namespace, context: Sequence[int]) -> str:
    digest = hashlib.blake2b(pack(context), digest_size=10).hexdigest()
    return f"{namespace.prefix}:p:{len(context)}:{digest}"


def _likeliest(counts: Counts, k: int) -> tuple[int, ...]:
    """Token by token the one that most went on with, of those that agree so far."""
    left = []
    for field, count in counts.items():
        ids = unpack(field) if len(field) <= 4 * CONTINUED else None
        if ids and count > 0:
            left.append((ids, count))
    tokens: list[int] = []
    total = sum(count for _, count in left)
    while left and len(tokens) < min(k, CONTINUED):
        votes: dict[int, int] = {}
        for ids, count in left:
            votes[ids[len(tokens)]] = votes.get(ids[len(tokens)], 0) + count
        # The smaller id of equal ones, so that a lookup does not depend on the order of fields.
        best = min(votes, key=lambda token: (-votes[token], token))
        if votes[best] < LEAST_SHARE * total:
            break
        tokens.append(best)
        left = [
            (ids, count) for ids, count in left if len(ids) > len(tokens) and ids[len(tokens) - 1] == best
        ]
    return tuple(tokens)
