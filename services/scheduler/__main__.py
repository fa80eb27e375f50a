"""`python -m services.scheduler`."""

from __future__ import annotations

import sys

from outrider.rpc.process import run_process
from services.scheduler.server import serve
from services.scheduler.settings import SchedulerSettings


def main() -> int:
    """Run the process; its exit code."""
    return run_process("scheduler", SchedulerSettings, serve)


if __name__ == "__main__":
    sys.exit(main())
