import pytest
from typer.testing import CliRunner

from outrider.cli.main import app


def test_version_names_program_and_protocol(monkeypatch):
    from outrider.cli import version

    monkeypatch.setattr(version.importlib.metadata, "version", lambda name: f"<{name}>")
    result = CliRunner().invoke(app, ["version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("outrider <outrider>\nprotocol revision 1")


@pytest.mark.parametrize(
    "command", ["up", "generate", "models list", "models fetch", "top", "warm", "purge", "version"]
)
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.stdout
    assert len(result.stdout.splitlines()) > 5


def test_an_unknown_command_is_a_usage_error():
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 2
    assert "No such command 'serve'" in result.stderr
