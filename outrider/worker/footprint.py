"""Memory that a worker takes, and what there is of it: of its process, or of its device where it has one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

EVERY_NS = 1_000_000_000
"""How long a reading is good for."""
UNLIMITED = 1 << 60
"""Without a limit the kernel's files name a number near 2^63, or the word max."""


class Usage(NamedTuple):
    """Bytes in use and bytes that there are; 0: not known."""

    used_bytes: int = 0
    limit_bytes: int = 0


class Footprint:
    """Read at most once a second, on any thread.

    On the CPU: resident memory of the process against the smallest limit of its control groups, or the
    machine's memory. On CUDA: what all processes use of the device, against all of it, since it is the device
    that gets full.
    """

    def __init__(
        self, device: str, *, root: Path = Path("/"), clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._device = device
        self._root = root
        self._clock_ns = clock_ns
        self._read_at_ns: int | None = None
        self._last = Usage()

    def read(self) -> Usage:
        """Of the last second."""
        now_ns = self._clock_ns()
        if self._read_at_ns is None or now_ns - self._read_at_ns >= EVERY_NS:
            self._read_at_ns = now_ns
            self._last = self._of_cuda() if self._device.startswith("cuda") else self._of_process()
        return self._last

    def _of_process(self) -> Usage:
        limits = (*self._group_limits(), *self._machine_bytes())
        return Usage(self._resident_bytes(), min(limits, default=0))

    def _of_cuda(self) -> Usage:
        # Not at the top: only a process that has loaded a model needs torch.
        import torch

        try:
            free_bytes, all_bytes = torch.cuda.mem_get_info(torch.device(self._device))
        except RuntimeError:  # the device is lost: what else the worker tells is told all the same
            return Usage()
        return Usage(all_bytes - free_bytes, all_bytes)

    def _resident_bytes(self) -> int:
        for line in self._lines("proc/self/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def _machine_bytes(self) -> Iterator[int]:
        for line in self._lines("proc/meminfo"):
            if line.startswith("MemTotal:"):
                yield int(line.split()[1]) * 1024

    def _group_limits(self) -> Iterator[int]:
        """Limits of the process's group and of all above it, in both versions of control groups.

        A container sees its own group as the root, whatever path /proc names, so the root is always read.
        """
        for line in self._lines("proc/self/cgroup"):
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from self._limits_along("sys/fs/cgroup", path, "memory.max")
            elif "memory" in controllers.split(","):
                yield from self._limits_along("sys/fs/cgroup/memory", path, "memory.limit_in_bytes")

    def _limits_along(self, mount: str, path: str, name: str) -> Iterator[int]:
        group = PurePosixPath(path.lstrip("/"))
        for each in (group, *group.parents):
            for line in self._lines(f"{mount}/{each}/{name}"):
                if line.isdigit() and int(line) < UNLIMITED:
                    yield int(line)

    def _lines(self, path: str) -> list[str]:
        try:
            return (self._root / path).read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:  # not Linux, another version of control groups, or not for us to read
            return []
