"""What a place to keep things in must be able to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Counts = Mapping[bytes, int]

MAX_FIELDS = 64
"""Of one key that are read; more than that nobody of ours leaves."""
MAX_VALUE_BYTES = 1 << 20
"""A longer value is not read."""


class BackendFailed(Exception):
    """It did not do it; the text says why in a few words, and never holds a password."""


@dataclass(frozen=True, slots=True)
class Count:
    """Add to the count of a field of a key."""

    key: str
    field: bytes
    amount: int
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove fields of a key."""

    key: str
    fields: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key."""

    key: str
    value: bytes
    ttl_s: int


Write = Count | Drop | Put


class Backend(Protocol):
    """Keys with counts by field, and keys with a value. Whatever is not understood reads as absent.

    Every method may raise BackendFailed.
    """

    kind: str
    is_remote: bool
    """It may be slow, or gone."""

    async def counts(self, keys: Sequence[str]) -> list[Counts]:
        """The fields of each key, some of them where there are too many, in one round trip."""
        ...

    async def values(self, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key, in one round trip; None where there is none, or one that is too long."""
        ...

    async def apply(self, writes: Sequence[Write]) -> int:
        """Do all of them, in one round trip; how many were refused for what is kept there already."""
        ...

    async def remove(self, prefix: str) -> int:
        """Remove all keys that begin so; how many there were."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
