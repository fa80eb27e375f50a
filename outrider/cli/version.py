"""`outrider version`."""

from __future__ import annotations

import importlib.metadata
import platform

from outrider.wire.worker import MINIMUM_REVISION, REVISION


def version() -> None:
    """Print the versions of Outrider, its protocol and Python."""
    print(f"outrider {importlib.metadata.version('outrider')}")
    print(f"protocol revision {REVISION} (talks to {MINIMUM_REVISION} and later)")
    print(f"python {platform.python_version()}")
