"""Settings that every process which listens has, and reading them from flags and environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from outrider.rpc.startup import StartupError

S = TypeVar("S", bound="ServerSettings")

ENV_PREFIX = "OUTRIDER_"


def _port_or_off(value: object) -> object:
    """A port is a number, and no port has a name of its own."""
    return None if value == "off" else value


MetricsPort = Annotated[
    Annotated[int, Field(ge=0, le=65535)] | None, BeforeValidator(_port_or_off, json_schema_input_type=str)
]


class SettingsError(StartupError):
    """A setting that can not be used; the message names it and says what it takes."""


class ServerSettings(BaseSettings):
    """Where a process listens and how it stops. Each field is a flag (`--ready-file`) and a variable
    (`OUTRIDER_READY_FILE`); the flag wins.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix=ENV_PREFIX,
        extra="ignore",
        # The docstring below a field is its help text.
        use_attribute_docstrings=True,
        # Lists are comma-separated in variables and flags alike, not JSON.
        enable_decoding=False,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_exit_on_error=False,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_show_env_vars=True,
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    metrics_port: MetricsPort = 0
    """Port for Prometheus, at /metrics, on the same host; 0 takes any free one, off serves none."""
    ready_file: Path | None = None
    """File to write once the process can answer: JSON with address, pid and service."""
    grace_s: float = Field(default=5.0, ge=0, le=600)
    """Seconds that open calls get to end when the process is told to stop."""
    reflection: bool = True
    """Answer gRPC reflection, so that grpcurl and its like work without the protos."""


def read_settings(kind: type[S], arguments: list[str]) -> S:
    """Build settings from command-line arguments, then environment, then defaults.

    Raises:
        SettingsError: one line that names the setting; SystemExit(0) after `--help`.

    """
    try:
        return kind(_cli_parse_args=arguments)  # type: ignore[call-arg]  # an argument of pydantic-settings' own
    except ValidationError as error:
        raise SettingsError(_one_line(error, kind)) from None
    except SourceError as error:
        raise SettingsError(" ".join(str(error).removeprefix("error parsing CLI: ").split())) from None


def _one_line(error: ValidationError, kind: type[ServerSettings]) -> str:
    """The first problem only: the next start shows the next one."""
    first: Any = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    problem = str(first["msg"]).removeprefix("Value error, ")
    if not name:
        return problem
    flag, variable = f"--{name.replace('_', '-')}", f"{ENV_PREFIX}{name.upper()}"
    problem = f"{problem[:1].lower()}{problem[1:]}"
    field = kind.model_fields.get(name)
    if field is not None and field.annotation is SecretStr:
        return f"{flag} ({variable}) can not be used: {problem}"
    return f"{flag} ({variable}) is {first['input']!r}: {problem}"
