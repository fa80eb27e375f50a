"""Settings of the draft."""

from __future__ import annotations

from pydantic import Field

from outrider.worker.settings import WorkerSettings


class DraftSettings(WorkerSettings):
    """The draft model, and how much to take on."""

    port: int = Field(default=50053, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    allow_near_tie: bool = True
    """Serve a model that can not keep the exact promise. Nothing depends on the draft's last bits."""
