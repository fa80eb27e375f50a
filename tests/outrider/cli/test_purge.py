"""`outrider purge` against a gateway that runs here."""

from typer.testing import CliRunner

from outrider.cli.main import app
from tests.outrider.cli.conftest import run_command
from tests.support.gateway import running_gateway


async def test_it_says_how_many_entries_were_removed_for_whom(backend):
    async with running_gateway(backend, tenant_metadata="x-tenant") as address:
        for flags in ([], ["--tenant", "blue", "--tenant-metadata", "x-tenant"]):
            assert await run_command("purge", "--server", address, *flags) == (0, "7 entries removed\n", "")
    assert backend.scheduler.purged == ["", "blue"]


def test_a_tenant_without_the_key_of_the_gateway_purges_nobody():
    result = CliRunner().invoke(app, ["purge", "--server", "127.0.0.1:1", "--tenant", "blue"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--tenant needs --tenant-metadata KEY" in result.stderr


def test_a_gateway_that_is_not_there_is_one_line():
    result = CliRunner().invoke(app, ["purge", "--server", "127.0.0.1:1"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: no gateway answers at 127.0.0.1:1")
    assert result.stderr.count("\n") == 1
