"""Runtimes over real weights, loaded once for all tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from outrider.runtime.loading import load_runtime
from tests.support.models import tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outrider.runtime.runtime import Runtime


@pytest.fixture(scope="session")
def runtime_of(tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path) -> Callable[[str, str], Runtime]:
    """Load a tiny family, or "smollm2", in a dtype; the same runtime each time."""
    torch.set_num_threads(2)
    loaded: dict[tuple[str, str], Runtime] = {}

    def load(name: str, dtype: str) -> Runtime:
        if (name, dtype) not in loaded:
            model = smollm2_path if name == "smollm2" else tiny_model(tmp_path_factory.mktemp(name), name)
            loaded[name, dtype] = load_runtime(str(model), dtype=dtype, kv_budget_bytes=64 << 20)
        return loaded[name, dtype]

    return load
