"""Settings of the scheduler process."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from outrider.rpc.addresses import Addresses
from outrider.rpc.settings import MetricsPort, ServerSettings
from outrider.store import check_url
from outrider.wire.generation import DraftSource
from outrider.wire.worker import MAX_DEPTH
from services.scheduler.alerts.rule_file import read_rules


def _opened(url: SecretStr) -> SecretStr:
    check_url(url.get_secret_value())
    return url


def _readable(path: str) -> str:
    """Rules that can not be used stop the start."""
    if path:
        read_rules(path)
    return path


class SchedulerSettings(ServerSettings):
    """The scheduler: its workers, how much it speculates, how long it waits."""

    port: int = Field(default=50051, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    metrics_port: MetricsPort = 9465
    """Port for Prometheus, at /metrics, on the same host; 0 takes any free one, off serves none."""
    validators: Addresses = ("127.0.0.1:50052",)
    """Validators, comma-separated host:port, or dns:NAME:PORT for every address that the name has."""
    drafts: Addresses = ("127.0.0.1:50053",)
    """Draft workers, in the same way; empty: none."""
    policy: Literal["adaptive", "bandit", "fixed"] = "adaptive"
    """How k and source are chosen where the request gives no k: by estimates, by trial, or max_k always."""
    max_k: int = Field(default=16, ge=0, le=MAX_DEPTH)
    """The largest k that a request may ask for, and that the policies choose."""
    default_source: Literal["none", "ngram", "model", "auto"] = "auto"
    """Draft source where the request does not say; auto: all, as the policy chooses for each round."""
    draft_opens: Literal["beside", "after"] = "beside"
    """When a draft reads the prompt: beside the target, or, where both share cores, after its first token."""
    draft_until: int | None = Field(default=None, ge=0)
    """A session of this many tokens, prompt included, goes on without drafts; unset: any length drafts."""
    draft_wait_ms: int = Field(default=1000, ge=0)
    """A round waits at most this long for a proposal, and at most twice the moving p95 of that draft."""
    validator_wait_s: float = Field(default=5.0, ge=0)
    """A new session waits this long for a validator when none is ready or none has room."""
    reopen_deadline_s: float = Field(default=20.0, ge=0)
    """A session whose validator is lost looks this long for one of equal numerics id."""
    redis_url: Annotated[SecretStr, AfterValidator(_opened)] = SecretStr("")
    """Redis that keeps patterns and answers, redis://[USER:PASSWORD@]HOST:PORT/DB; empty: this process."""
    alerts: Annotated[str, AfterValidator(_readable)] = ""
    """A YAML file of alert rules; empty: the built-in ones."""
    failover: Literal["equal", "any"] = "equal"
    """After that deadline: end with NO_EQUAL_REPLICA, or go on with any validator and say so."""

    @model_validator(mode="after")
    def _consistent(self) -> SchedulerSettings:
        if not self.validators:
            raise ValueError("--validators (OUTRIDER_VALIDATORS) is empty; name at least one host:port")
        return self

    @property
    def source(self) -> DraftSource | None:
        """The draft source of requests that name none; None leaves each round its choice."""
        if self.default_source == "auto":
            return None if self.drafts else DraftSource.NGRAM
        return DraftSource[self.default_source.upper()]
