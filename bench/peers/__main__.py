"""`python -m bench.peers install-llama-cpp`."""

from __future__ import annotations

import sys

from bench.peers.llama_cpp import NotInstallable, install


def main() -> None:
    """Install what the peers need beside the Python packages."""
    if sys.argv[1:] != ["install-llama-cpp"]:
        print("usage: python -m bench.peers install-llama-cpp", file=sys.stderr)
        sys.exit(2)
    try:
        print(f"installed in {install()}")
    except NotInstallable as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
