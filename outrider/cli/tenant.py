"""Whose caches a command is about: named as a trusted proxy names it to the gateway."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from outrider.cli.reporting import EXIT_USAGE, fail

Tenant = Annotated[
    str,
    typer.Option(
        help="Act for this tenant, with --tenant-metadata.", show_default="callers that name no tenant"
    ),
]
TenantMetadata = Annotated[
    str,
    typer.Option(
        envvar="OUTRIDER_TENANT_METADATA",
        help="Key of the calls' metadata in which the gateway is told the tenant: its own --tenant-metadata.",
        show_default=False,
    ),
]


def metadata_of(tenant: str, key: str) -> tuple[tuple[str, str], ...]:
    """What to send along. Ends the command when it can not name the tenant."""
    if not tenant:
        return ()
    if not key:
        fail(
            "--tenant needs --tenant-metadata KEY (OUTRIDER_TENANT_METADATA), the same as the gateway's; "
            "without it a gateway knows no tenants",
            EXIT_USAGE,
        )
    if not re.fullmatch("[a-z0-9_.-]+", key):
        fail(f"--tenant-metadata is {key!r}; give lower-case letters, digits and _.- as x-tenant", EXIT_USAGE)
    if not (tenant.isascii() and tenant.isprintable()):
        fail("--tenant holds characters that metadata can not; give printable ASCII", EXIT_USAGE)
    return ((key, tenant),)
