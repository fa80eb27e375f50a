"""Whose entries are whose."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

ROOT = "outrider:1"
"""Prefix of all keys; the number is that of their form."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """Sessions share entries only when all of these are equal.

    Names are hashed in keys: a tenant may be a person's address, and whoever runs Redis need not read it.
    """

    tokenizer: str
    """Fingerprint: ids of another tokenizer mean something else."""
    model: str
    """Fingerprint of the target's weights: another target says something else."""
    adapter: str = ""
    tenant: str = ""
    salt: str = ""
    """Requests of other salts can not tell from response times what this one has left behind."""

    @property
    def prefix(self) -> str:
        """What its keys begin with."""
        return f"{tenant_prefix(self.tenant)}:{_digest(self.tokenizer, self.model, self.adapter, self.salt)}"


@functools.lru_cache(maxsize=1024)
def tenant_prefix(tenant: str) -> str:
    """What all keys of a tenant begin with."""
    return f"{ROOT}:{_digest(tenant)}"


def tenant_part(key: str) -> str:
    """The tenant's part of a key, for whoever shares room among tenants."""
    return key[: len(ROOT) + 1 + 2 * _SIZE]


_SIZE = 8


@functools.lru_cache(maxsize=4096)
def _digest(*parts: str) -> str:
    key = hashlib.blake2b(digest_size=_SIZE)
    for part in parts:
        encoded = part.encode()
        key.update(len(encoded).to_bytes(4, "little"))
        key.update(encoded)
    return key.hexdigest()
