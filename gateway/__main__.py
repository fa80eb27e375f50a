"""`python -m gateway`."""

import sys

from gateway.server import serve
from gateway.settings import GatewaySettings
from outrider.rpc.process import run_process


def main() -> int:
    """Run the gateway until it is told to stop; returns the exit code."""
    return run_process("gateway", GatewaySettings, serve)


if __name__ == "__main__":
    sys.exit(main())
