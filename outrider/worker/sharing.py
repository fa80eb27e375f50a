"""Which sessions may read each other's prompt pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from outrider.runtime.prefix import scope_of


class Opening(Protocol):
    """Of what an opening says, whose the session is."""

    @property
    def tenant(self) -> str: ...
    @property
    def cache_salt(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PrefixSharing:
    """What the operator allows."""

    enabled: bool = True
    # Sessions of different tenants too, as long as their salts are equal.
    across_tenants: bool = False

    def scope_of(self, opening: Opening) -> bytes | None:
        """What names the sessions that may share; None: none may."""
        if not self.enabled:
            return None
        return scope_of("" if self.across_tenants else opening.tenant, opening.cache_salt)
