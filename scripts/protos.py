"""Write outrider/v1 from protos/, or with --check compare it with what would be written.

The generators are pinned exactly in pyproject.toml, so equal protos give equal files everywhere.
"""

import argparse
import filecmp
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PACKAGE = Path("outrider/v1")


def generate(target: Path) -> None:
    """Write the modules of every proto below `target`; stubs only where a proto declares a service."""
    for proto in sorted((PROTOS / PACKAGE).glob("*.proto")):
        outputs = [f"--python_out={target}", f"--pyi_out={target}"]
        if re.search(r"^service ", proto.read_text(encoding="utf-8"), re.MULTILINE):
            outputs += [f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}"]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", *outputs, str(proto)]
        # protoc looks for mypy-protobuf's plug-in on PATH, which need not hold this environment.
        plugin = Path(sys.executable).parent / "protoc-gen-mypy_grpc"
        command.insert(3, f"--plugin=protoc-gen-mypy_grpc={plugin}")
        subprocess.run(command, check=True)


def generated(folder: Path) -> dict[str, Path]:
    """Name to path of every generated file in `folder`."""
    return {path.name: path for path in sorted(folder.glob("*_pb2*.py*"))}


def differences(fresh: Path, committed: Path) -> list[str]:
    """One line for each file that is missing, left over or different."""
    new, old = generated(fresh), generated(committed)
    lines = [f"missing: {PACKAGE / name}" for name in new.keys() - old.keys()]
    lines += [f"left over: {PACKAGE / name}" for name in old.keys() - new.keys()]
    both = new.keys() & old.keys()
    lines += [
        f"differs: {PACKAGE / name}" for name in both if not filecmp.cmp(new[name], old[name], shallow=False)
    ]
    return sorted(lines)


def main() -> int:
    """Run; the exit status is 1 when --check found a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    check = parser.parse_args().check
    committed = ROOT / PACKAGE
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = Path(scratch) / PACKAGE
        stale = differences(fresh, committed)
        if check:
            if stale:
                print(*stale, "outrider/v1 is not what protos/ gives: run `make protos`", sep="\n")
            return int(bool(stale))
        for path in generated(committed).values():
            path.unlink()
        for path in generated(fresh).values():
            shutil.copyfile(path, committed / path.name)
        print(*(stale or ["outrider/v1 was current"]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
