"""llama.cpp on the same GGUF files, through the npm package node-llama-cpp."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

from outrider import models
from outrider.models import cache_dir

VERSION = "3.21.1"
SCRIPT = Path(__file__).with_name("llama_cpp.mjs")
_PLATFORMS = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "arm64"): "mac-arm64-metal",
    ("Darwin", "x86_64"): "mac-x64",
}


class NotInstallable(Exception):
    """The package cannot be installed here; one sentence says why."""


def folder() -> Path:
    """Where it is installed: a folder of the user's cache."""
    return cache_dir() / "bench" / f"node-llama-cpp-{VERSION}"


def is_installed() -> bool:
    """Whether it was installed, and node is there to run it."""
    package = folder() / "node_modules" / "node-llama-cpp" / "package.json"
    return package.is_file() and shutil.which("node") is not None


def install() -> Path:
    """Install the package with the one prebuilt library that fits this machine. Raises NotInstallable."""
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstallable("npm is not installed; install Node.js 20 or later")
    machine = (platform.system(), platform.machine())
    if machine not in _PLATFORMS:
        raise NotInstallable(f"node-llama-cpp has no prebuilt library for {' '.join(machine)}")
    target = folder()
    target.mkdir(parents=True, exist_ok=True)
    # Without the optional packages: they are the libraries of all other platforms, 700 MB. Without scripts:
    # they would build from source where a library is missing.
    packages = [f"node-llama-cpp@{VERSION}", f"@node-llama-cpp/{_PLATFORMS[machine]}@{VERSION}"]
    options = ["--prefix", str(target), "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"]
    ended = subprocess.run([npm, "install", *options, *packages], check=False)
    if ended.returncode != 0:
        raise NotInstallable(f"npm ended with exit code {ended.returncode}")
    return target


def command(target: str, draft: str | None) -> list[str] | None:
    """What starts it on these models; None unless both are GGUF files."""
    paths = [_gguf(model) for model in (target, draft) if model is not None]
    if any(path is None for path in paths):
        return None
    return ["node", str(SCRIPT), str(folder() / "node_modules"), *(str(path) for path in paths)]


def _gguf(model: str) -> Path | None:
    path = models.resolve(model) if model in models.MODELS else Path(model).expanduser()
    return path if path.suffix == ".gguf" and path.is_file() else None
