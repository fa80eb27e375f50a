"""Whose request it is, as the scheduler is told: caches are kept apart by it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gateway.settings import GatewaySettings
from outrider.client import OutriderClient
from outrider.rpc import errors
from outrider.rpc.settings import SettingsError, read_settings
from tests.support.gateway import running_gateway
from tests.support.scripted import Script, scripted_backend


async def test_c69_the_salt_of_a_request_reaches_the_scheduler(backend, client, ids):
    script = backend.play(Script([ids("one")]))
    await client.complete("one", cache_salt="pepper")
    assert (script.request.tenant, script.request.cache_salt) == ("", "pepper")


async def test_c69_the_tenant_is_what_the_proxy_in_front_says(backend, ids):
    async with (
        running_gateway(backend, tenant_metadata="x-tenant") as address,
        OutriderClient(address) as client,
    ):
        for metadata, tenant in (([("x-tenant", "blue")], "blue"), ([("x-other", "red")], "")):
            script = backend.play(Script([ids("one")]))
            await client.complete("one", metadata=metadata)
            assert script.request.tenant == tenant


async def test_without_that_setting_no_caller_can_name_a_tenant(backend, client, ids):
    script = backend.play(Script([ids("one")]))
    await client.complete("one", metadata=[("x-tenant", "blue"), ("tenant", "blue")])
    assert script.request.tenant == ""


def test_a_key_that_no_call_can_have_is_refused():
    with pytest.raises(SettingsError, match="--tenant-metadata"):
        read_settings(GatewaySettings, ["--tenant-metadata", "X-Tenant"])


async def test_a_purge_is_for_the_tenant_of_the_caller(backend):
    async with (
        running_gateway(backend, tenant_metadata="x-tenant") as address,
        OutriderClient(address) as client,
    ):
        assert await client.purge(metadata=[("x-tenant", "blue")]) == 7
        assert await client.purge(metadata=[("x-other", "red")]) == 7
    assert backend.scheduler.purged == ["blue", ""]


async def test_a_purge_reaches_every_scheduler(files, info, backend):
    async with scripted_backend(files, info) as other:
        both = SimpleNamespace(address=(backend.address, other.address))
        async with running_gateway(both) as address, OutriderClient(address) as client:
            assert await client.purge() == 14
            await other.server.stop(0)
            with pytest.raises(errors.Unavailable, match=f"the scheduler at {other.address} has not purged"):
                await client.purge()
    assert len(backend.scheduler.purged) == 2
