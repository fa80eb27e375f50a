"""Settings that both workers have beside those of every process that listens."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from outrider.rpc.settings import ServerSettings
from outrider.runtime.dtypes import Dtype
from outrider.wire.worker import MAX_NODES
from outrider.worker.engine import Limits
from outrider.worker.sharing import PrefixSharing

SMALLEST_BUDGET = MAX_NODES + 64
"""The largest tree with the rows in front of it must fit one forward."""

CPU_BUDGET, CPU_CHUNK = 512, 256
"""Rows of one forward, and of them prompts. Fewer make a prompt's own prefill slower, more let everybody else
wait longer for the next forward."""
ACCELERATOR_BUDGET, ACCELERATOR_CHUNK = 1024, 512


class WorkerSettings(ServerSettings):
    """What to load, and how much to take on."""

    model: str = Field(min_length=1)
    """Model to serve: hub id, folder with safetensors, GGUF file, or the name of a fetched model."""
    served_name: str = ""
    """Name to show for the model; its own unless given."""
    dtype: Dtype = "bfloat16"
    """Element type of weights, activations and KV; int8 and int4 are the weights' alone."""
    device: str = "cpu"
    """Where the model runs: cpu, cuda or cuda:N."""
    num_threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads; unset leaves the choice to torch. Part of the numerics id."""
    kv_budget_mib: int = Field(default=1024, ge=1)
    """Memory for keys and values, in MiB."""
    prefix_cache: bool = True
    """Keep KV pages of sessions that have ended, and let sessions that begin alike skip that part."""
    prefix_across_tenants: bool = False
    """Let sessions of different tenants share such pages; a cache_salt keeps them apart still."""
    token_budget: int | None = Field(default=None, ge=SMALLEST_BUDGET, le=1024)
    """Most rows of one forward, over all sessions; unset: what suits the device."""
    prefill_chunk: int | None = Field(default=None, ge=64, le=1024)
    """Most rows of one forward that may be prompts; unset: what suits the device."""
    max_sessions: int = Field(default=256, ge=1)
    """Sessions that may be open at one time."""
    lease_s: float = Field(default=10.0, ge=0, le=3600)
    """Seconds that sessions outlive a lost stream."""
    allow_near_tie: bool = False
    """Serve a model that can not keep the exact promise, marked so, instead of refusing it."""

    @property
    def runtime_options(self) -> dict[str, Any]:
        """What `load_runtime` is told beside the model."""
        return {
            "dtype": self.dtype,
            "device": self.device,
            "kv_budget_bytes": self.kv_budget_mib << 20,
            "num_threads": self.num_threads,
            "allow_near_tie": self.allow_near_tie,
            "served_name": self.served_name,
        }

    @property
    def limits(self) -> Limits:
        """How much the engine takes on."""
        on_cpu = self.device.partition(":")[0] == "cpu"
        budget, chunk = (CPU_BUDGET, CPU_CHUNK) if on_cpu else (ACCELERATOR_BUDGET, ACCELERATOR_CHUNK)
        budget = self.token_budget or budget
        return Limits(
            token_budget=budget,
            prefill_chunk=self.prefill_chunk or min(chunk, budget // 2),
            max_sessions=self.max_sessions,
            lease_s=self.lease_s,
            sharing=PrefixSharing(self.prefix_cache, self.prefix_across_tenants),
        )
