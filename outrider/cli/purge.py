"""`outrider purge`: what was learnt from a tenant is forgotten."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from outrider.cli.reporting import reported
from outrider.cli.tenant import Tenant, TenantMetadata, metadata_of
from outrider.client import DEFAULT_ADDRESS, OutriderClient, OutriderError


def purge(
    server: Annotated[
        str, typer.Option(help="Address of the gateway, host:port.", envvar="OUTRIDER_SERVER")
    ] = DEFAULT_ADDRESS,
    tenant: Tenant = "",
    tenant_metadata: TenantMetadata = "",
) -> None:
    """Remove the answers and patterns that the shared store keeps of a tenant; of no other's.

    They only ever served as drafts: answers stay the same, and come slower until there is new experience.
    """
    metadata = metadata_of(tenant, tenant_metadata)
    with reported(OutriderError):
        num_entries = asyncio.run(_purge(server, metadata))
    print(f"{num_entries} {'entry' if num_entries == 1 else 'entries'} removed")


async def _purge(server: str, metadata: tuple[tuple[str, str], ...]) -> int:
    async with OutriderClient(server) as client:
        return await client.purge(metadata=metadata)
