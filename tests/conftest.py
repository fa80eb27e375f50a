"""Fixtures that every test may ask for."""

import os
from pathlib import Path

import pytest

from outrider import models
from outrider.runtime.cores import SHARED_CORES

# Tests run models in several processes at a time. Takes effect because torch is not loaded yet.
for _name, _value in SHARED_CORES.items():
    os.environ.setdefault(_name, _value)
# Many processes run at a time, and each would want the same port; those who ask for metrics say so.
os.environ.setdefault("OUTRIDER_METRICS_PORT", "off")


@pytest.fixture(autouse=True)
def _no_outside_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's OTEL_* settings must not reach the code under test."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, fetched into the user's cache on first use."""
    return models.fetch("smollm2")[0]
