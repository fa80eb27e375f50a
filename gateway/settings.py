"""Settings of the gateway."""

from __future__ import annotations

from pydantic import Field, field_validator

from outrider.rpc.addresses import Addresses
from outrider.rpc.settings import MetricsPort, ServerSettings


class GatewaySettings(ServerSettings):
    """Where the gateway listens, and which scheduler it asks."""

    port: int = Field(default=50050, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    metrics_port: MetricsPort = 9464
    """Port for Prometheus, at /metrics, on the same host; 0 takes any free one, off serves none."""
    scheduler: Addresses = ("127.0.0.1:50051",)
    """Address of the scheduler, host:port; of several, comma-separated, each takes its turn, and goes on with
    what one that was lost had begun."""
    max_prompt_bytes: int = Field(default=8 * 2**20, ge=1, le=24 * 2**20)
    """Longest prompt or chat in bytes of UTF-8: what is longer is refused before it is tokenized."""
    tenant_metadata: str = Field(default="", pattern=r"^[a-z0-9_.-]*$")
    """Key of the calls' metadata in which a trusted proxy names the tenant; empty: all callers are one.
    Caches are separate per tenant. Only for a gateway that no caller reaches but through that proxy."""

    @field_validator("scheduler")
    @classmethod
    def _is_there(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("it is empty; give host:port, such as 127.0.0.1:50051")
        return value
