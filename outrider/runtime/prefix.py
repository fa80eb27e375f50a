"""Which pages hold the KV of which tokens, so that a prompt that begins alike need not be run again.

The KV of a page depends on its own tokens and on all before them. So a full page is named by a hash over the
name of the page before it and its own ids, and the first page of a chain continues a *scope*: tenants and
salts have scopes of their own, whose chains never meet.

Example: with pages of 2 tokens, [5, 6, 7, 8, 9] has the pages h1 = hash(scope, 5 6) and h2 = hash(h1, 7 8);
9 is in no full page and has no name.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DIGEST_BYTES = 32


def scope_of(tenant: str, cache_salt: str) -> bytes:
    """The beginning of all chains of one tenant and salt."""
    name = tenant.encode()
    # The length keeps ("ab", "c") and ("a", "bc") apart.
    text = len(name).to_bytes(8, "little") + name + cache_salt.encode()
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES, person=b"outrider-scope").digest()


def chained(parent: bytes, ids: Sequence[int]) -> bytes:
    """The name of the page of `ids` behind the page (or scope) `parent`."""
    return hashlib.blake2b(parent + array("q", ids).tobytes(), digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class _Entry:
    page: int
    parent: bytes
    ids: tuple[int, ...]


class PrefixIndex:
    """Finds pages by name. It neither owns them nor knows who uses them."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _Entry] = {}
        self._names: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, page: int) -> bool:
        """Whether the page can be found."""
        return page in self._names

    def add(self, parent: bytes, ids: Sequence[int], page: int) -> bytes:
        """Let a page be found; its name. Of two with one content the first stays."""
        name = chained(parent, ids)
        if name not in self._entries and page not in self._names:
            self._entries[name] = _Entry(page, parent, tuple(ids))
            self._names[page] = name
        return name

    def find(self, name: bytes, parent: bytes, ids: Sequence[int]) -> int | None:
        """The page of that name. The ids are compared: nobody reads another's KV for an equal hash."""
        entry = self._entries.get(name)
        if entry is None or entry.parent != parent or entry.ids != tuple(ids):
            return None
        return entry.page

    def forget(self, page: int) -> None:
        """The page will hold something else."""
        name = self._names.pop(page, None)
        if name is not None:
            del self._entries[name]
