"""Settings of the validator."""

from __future__ import annotations

from pydantic import Field

from outrider.rpc.settings import MetricsPort
from outrider.worker.settings import WorkerSettings


class ValidatorSettings(WorkerSettings):
    """The target model, and how much to take on."""

    port: int = Field(default=50052, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    metrics_port: MetricsPort = 9466
    """Port for Prometheus, at /metrics, on the same host; 0 takes any free one, off serves none."""
