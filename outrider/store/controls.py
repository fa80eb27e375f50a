"""What the control of schedulers has learnt of acceptance, for one that starts."""

from __future__ import annotations

import hashlib

from outrider.store.access import Access
from outrider.store.backend import MAX_VALUE_BYTES, Put
from outrider.store.namespace import ROOT

TTL_S = 30 * 24 * 3600


class ControlStore:
    """One document per target. It holds no tenant's text, and belongs to none."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def load(self, target: str) -> bytes | None:
        """The document; None without one. Whoever reads it must expect anything. Never raises."""
        (document,) = await self._access.values([_key(target)])
        return document

    def save(self, target: str, document: bytes) -> None:
        """Replace it; returns at once, it is written soon."""
        if len(document) <= MAX_VALUE_BYTES:
            self._access.write([Put(_key(target), document, TTL_S)])


def _key(target: str) -> str:
    return f"{ROOT}:control:{hashlib.blake2b(target.encode(), digest_size=8).hexdigest()}"
