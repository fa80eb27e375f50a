"""`outrider version`."""

from __future__ import annotations

import importlib.metadata
import platform

from outrider.wire.worker import MINIMUM_REVISION, REVISION


def version() -> None:
    """Print the versions of Outrider, its protocol and Python."""
    try:
        own = importlib.metadata.version("outrider")
    except importlib.metadata.PackageNotFoundError:
        own = "(not installed: it runs from its source folder)"
    print(f"outrider {own}")
    print(f"protocol revision {REVISION} (talks to {MINIMUM_REVISION} and later)")
    print(f"python {platform.python_version()}")
