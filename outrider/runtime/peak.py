"""What a device can do at best: the denominators of utilisation, measured in well under a second."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

BUFFER_BYTES = 1 << 27
"""Read to measure the bandwidth of memory: larger than most caches."""
NUM_ROWS = 512
"""Rows of the measured product: as many as a full forward has."""
WIDTHS = (1024, 2048, 4096, 8192)
"""Sides of its square matrix, tried until one product takes long enough to be timed."""
ENOUGH_S = 0.01
NUM_TRIES = 3


@dataclass(frozen=True, slots=True)
class Peak:
    """Rates of one device."""

    flops_per_s: float
    read_bytes_per_s: float


def measure_peak(device: str, dtype: str) -> Peak:
    """The best of a few tries each: a large matrix product, and reading a large buffer.

    The number of threads is torch's of the moment. What else runs on the machine makes the figures smaller.
    Weights of fewer bits than 16 are measured as bfloat16, which all else of such a model is.
    """
    target = torch.device(device)
    elements = {"float32": torch.float32, "float16": torch.float16}.get(dtype, torch.bfloat16)
    with torch.inference_mode():
        return Peak(_flops_per_s(target, elements), _read_bytes_per_s(target))


def _flops_per_s(device: torch.device, dtype: torch.dtype) -> float:
    best = 0.0
    for width in WIDTHS:
        rows = torch.ones(NUM_ROWS, width, device=device, dtype=dtype)
        weight = torch.ones(width, width, device=device, dtype=dtype)
        took_s = _best_s(partial(torch.nn.functional.linear, rows, weight), device)
        best = max(best, 2 * NUM_ROWS * width * width / took_s)
        if took_s > ENOUGH_S:
            break
    return best


def _read_bytes_per_s(device: torch.device) -> float:
    buffer = torch.ones(BUFFER_BYTES // 4, device=device, dtype=torch.float32)
    return BUFFER_BYTES / _best_s(buffer.sum, device)


def _best_s(act: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of a few runs; one before them warms up."""
    act()
    best = float("inf")
    for _ in range(NUM_TRIES):
        _wait_for(device)
        started = time.perf_counter()
        act()
        _wait_for(device)
        best = min(best, time.perf_counter() - started)
    return best


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
