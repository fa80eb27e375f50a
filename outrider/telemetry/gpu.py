"""What NVML says of a GPU; nothing without one, or without the package nvidia-ml-py."""

from __future__ import annotations

import importlib
import os
from typing import Any

import structlog

from outrider.telemetry.metric_names import GPU_MEMORY, GPU_MEMORY_USED, GPU_UTILIZATION
from outrider.telemetry.metrics import Reading, Readings

log = structlog.get_logger(__name__)


def gpu_readings(device: str) -> Readings | None:
    """Readings of `device`, such as "cuda:1", at each scrape; None when there is nothing to read."""
    if not device.startswith("cuda"):
        return None
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        log.info("gpu_not_metered", problem="the package nvidia-ml-py is not installed (extra: gpu)")
        return None
    try:
        nvml.nvmlInit()
        handle = _handle(nvml, int(device.partition(":")[2] or 0))
        name = str(nvml.nvmlDeviceGetIndex(handle))
    except nvml.NVMLError as error:
        log.info("gpu_not_metered", problem=str(error))
        return None

    def read() -> list[Reading]:
        try:
            rates, memory = nvml.nvmlDeviceGetUtilizationRates(handle), nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError:  # lost, or not allowed: what the worker does is metered all the same
            return []
        return [
            Reading(GPU_UTILIZATION, rates.gpu / 100, (name,)),
            Reading(GPU_MEMORY_USED, memory.used, (name,)),
            Reading(GPU_MEMORY, memory.total, (name,)),
        ]

    return read


def _handle(nvml: Any, index: int) -> Any:
    """NVML counts all GPUs of the machine, CUDA those that CUDA_VISIBLE_DEVICES leaves."""
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    name = visible[index] if index < len(visible) else str(index)
    return (
        nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)
    )
