"""Compiles C++ of ours for this machine, once, and loads it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Set as AbstractSet
from pathlib import Path

from outrider.models import cache_dir

COMPILER_VARIABLE = "CXX"

_FLAGS = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", "-pthread", "-w")
_COMPILE_LIMIT_S = 120

NativeLibrary = ctypes.CDLL


class NoNativeLibrary(Exception):
    """The machine can not have it; one sentence says why."""


def compiled(source: Path, needed: AbstractSet[str]) -> NativeLibrary:
    """The compiled code of one file; takes some seconds the first time, then it is in the cache folder.

    Args:
        source: the C++ file.
        needed: what the CPU must be able to do, as Linux names it.

    Raises:
        NoNativeLibrary: the CPU lacks instructions, or there is no compiler, or it failed.
    """
    flags = _cpu_flags()
    if missing := needed - flags:
        raise NoNativeLibrary(f"the CPU has no {', '.join(sorted(missing))}")
    compiler = _compiler()
    key = hashlib.blake2b(digest_size=16)
    # Code for one CPU may not run on another that shares the cache folder.
    for part in (source.read_bytes(), " ".join(_FLAGS).encode(), " ".join(sorted(flags)).encode()):
        key.update(part)
    library = cache_dir() / "native" / f"{source.stem}-{key.hexdigest()}.so"
    if not library.is_file():
        _compile(compiler, source, library)
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise NoNativeLibrary(f"{library} can not be loaded: {error}") from error


def _cpu_flags() -> frozenset[str]:
    if platform.machine() not in ("x86_64", "AMD64"):
        raise NoNativeLibrary(f"it is written for x86-64, not for {platform.machine()}")
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError as error:
        raise NoNativeLibrary("the CPU's instructions can not be looked up on this system") from error
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def _compiler() -> str:
    chosen = os.environ.get(COMPILER_VARIABLE)
    for name in [chosen] if chosen else ["c++", "g++", "clang++"]:
        if found := shutil.which(name):
            return found
    raise NoNativeLibrary(f"no C++ compiler was found; install one or name it in {COMPILER_VARIABLE}")


def _compile(compiler: str, source: Path, library: Path) -> None:
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        # Workers that start together may compile together; each moves a whole file into place.
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder) / library.name
            done = subprocess.run(  # the user's own compiler on our own source
                [compiler, *_FLAGS, "-o", str(made), str(source)],
                capture_output=True,
                text=True,
                timeout=_COMPILE_LIMIT_S,
                check=False,
            )
            if done.returncode:
                lines = done.stderr.strip().splitlines() or ["no message"]
                raise NoNativeLibrary(f"{compiler} failed: {lines[-1]}")
            made.replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoNativeLibrary(f"{source.name} can not be compiled: {error}") from error
