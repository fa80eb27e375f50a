"""Whose request it is, as the scheduler is told: caches are kept apart by it."""

from __future__ import annotations

import pytest

from gateway.settings import GatewaySettings
from outrider.client import OutriderClient
from outrider.rpc.settings import SettingsError, read_settings
from tests.support.gateway import running_gateway
from tests.support.scripted import Script


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
