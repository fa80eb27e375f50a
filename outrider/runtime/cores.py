"""How model processes that share CPU cores stay out of each other's way."""

from __future__ import annotations

from typing import Final

SHARED_CORES: Final = {"GOMP_SPINCOUNT": "1000"}
"""Environment for model processes on the same cores; must be set before torch is loaded.

OpenMP threads spin for a while when they wait for work. Draft and validator take turns, so the threads of the
one that waits would spin on the cores that the other one needs. Not 0, so that threads need not be woken
between the kernels of one forward.
"""
