"""Settings of the validator."""

from __future__ import annotations

from pydantic import Field

from outrider.worker.settings import WorkerSettings


class ValidatorSettings(WorkerSettings):
    """The target model, and how much to take on."""

    port: int = Field(default=50052, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
