"""Light processes start without a model library: what they import is checked in a fresh interpreter."""

import subprocess
import sys

import pytest

LIGHT = [
    "gateway",
    "outrider.cli",
    "outrider.client",
    "outrider.models",
    "outrider.rpc",
    "outrider.sampling",
    "outrider.telemetry",
    "outrider.text",
    "outrider.wire",
    "services.scheduler",
]

PROBE = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*sorted({"torch", "transformers"} & sys.modules.keys()))
"""


def loaded(package: str) -> list[str]:
    run = subprocess.run([sys.executable, "-c", PROBE, package], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.parametrize("package", LIGHT)
def test_every_module_of_a_light_package_imports_without_a_model_library(package):
    assert loaded(package) == []


def test_the_probe_sees_a_model_library_where_there_is_one():
    assert "torch" in loaded("outrider.runtime")
