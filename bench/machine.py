"""The machine that the figures belong to."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "sve",
    "bf16",
    "i8mm",
)
"""Processor features that decide which kernels run."""
PACKAGES = ("torch", "transformers", "grpcio", "numpy", "outrider")
PROBE_BYTES = 256 << 20


def describe() -> dict[str, Any]:
    """Processor, memory, versions, commit."""
    cpuinfo = _cpuinfo()
    flags = set(f"{cpuinfo.get('flags', '')} {cpuinfo.get('Features', '')}".split())
    return {
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "cpu": cpuinfo.get("model name", platform.processor() or platform.machine()),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "flags": [flag for flag in FLAGS if flag in flags],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "read_gb_per_s": round(max(read_bandwidth() for _ in range(5)), 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "commit": _commit(),
    }


def in_words(machine: dict[str, Any]) -> str:
    """One line."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"{machine['cores']} cores of {machine['cpu']} ({', '.join(machine['flags'])}), "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, one core reads {machine['read_gb_per_s']} GB/s; "
        f"{packages}; commit {machine['commit']}"
    )


def read_bandwidth() -> float:
    """GB per second that one core reads from memory, now."""
    block = _block()
    start = time.perf_counter()
    block.max()
    return PROBE_BYTES / (time.perf_counter() - start) / 1e9


_blocks: list[np.ndarray] = []


def _block() -> np.ndarray:
    if not _blocks:
        # Written once: pages that were never written are all the same page of zeros.
        _blocks.append(np.ones(PROBE_BYTES // 8, dtype=np.int64))
    return _blocks[0]


def _cpuinfo() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _commit() -> str:
    try:
        ended = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return ended.stdout.strip()
