"""What the kernel tells of processes: memory and processor time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# How threads wait changes speed: each program gets its own default, whatever the caller's shell says.
_NOT_INHERITED = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would bend a measurement, and with `extra`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _NOT_INHERITED and not name.startswith("OTEL_")
    }
    return {**kept, **extra}


def memory_bytes(pid: int, field: str = "VmHWM") -> int | None:
    """A field of /proc/PID/status in bytes: VmHWM is the largest resident size so far, VmRSS the present one.

    None where the process or the system does not tell.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    values = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(values[0]) * 1024 if values else None


def cpu_s(pids: Iterable[int]) -> float:
    """Processor seconds that these processes have used, all threads together; 0 for those that have ended."""
    total = 0
    for pid in pids:
        try:
            # The name in brackets may hold anything, blanks included.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_S


def machine_busy_s() -> float:
    """Processor seconds that all of the machine has used since it started; 0 where it does not tell."""
    try:
        fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, fields)
    return (user + nice + system + irq + softirq) / _TICKS_PER_S
