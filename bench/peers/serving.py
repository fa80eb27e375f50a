"""The child's side of a peer that is written in Python."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def serve(about: dict[str, Any], answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Say that it is ready, then answer line by line until standard input ends.

    What libraries print to standard output goes to standard error: only answers belong there.
    """
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    send(about)
    for line in sys.stdin:
        try:
            send(answer(json.loads(line)))
        except Exception as error:  # noqa: BLE001  # the parent decides what a failed question means
            send({"error": f"{type(error).__name__}: {error}"})
