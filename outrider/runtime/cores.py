"""How model processes use the machine: huge pages, and staying out of each other's way on shared cores."""

from __future__ import annotations

from typing import Final

HUGE_PAGES: Final = {"THP_MEM_ALLOC_ENABLE": "1"}
"""Environment for every model process: weights lie in huge pages, of which fewer have to be looked up."""

SHARED_CORES: Final = {"GOMP_SPINCOUNT": "10000"}
"""Environment for model processes on the same cores; must be set before torch is loaded.

OpenMP threads spin for a while when they wait for work. Draft and validator take turns, so the threads of the
one that waits would spin on the cores that the other one needs. The count bridges the gaps between the
kernels of one forward, where a thread that sleeps has to be woken again, and little more.
"""
