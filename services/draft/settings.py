"""Settings of the draft."""

from __future__ import annotations

from pydantic import Field

from outrider.rpc.settings import MetricsPort
from outrider.worker.settings import WorkerSettings


class DraftSettings(WorkerSettings):
    """The draft model, and how much to take on."""

    port: int = Field(default=50053, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    metrics_port: MetricsPort = 9467
    """Port for Prometheus, at /metrics, on the same host; 0 takes any free one, off serves none."""
    allow_near_tie: bool = True
    """Serve a model that can not keep the exact promise. Nothing depends on the draft's last bits."""
