"""`python -m outrider.cli.launch PARENT MODULE ...` becomes `python -m MODULE ...`, and ends with PARENT.

On Linux the kernel is asked to kill this process when its parent is gone, however it went; the wish survives
the exec below. Elsewhere only a parent that still runs can stop its children.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Ask for SIGKILL at the parent's death; exit at once if it is dead already."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:  # it died before the kernel was asked
        sys.exit(1)


def main() -> None:
    """Replace this process by the wanted one."""
    parent_pid, *command = sys.argv[1:]
    die_with_parent(int(parent_pid))
    os.execv(sys.executable, [sys.executable, "-m", *command])  # noqa: S606  # no shell is wanted


if __name__ == "__main__":
    main()
