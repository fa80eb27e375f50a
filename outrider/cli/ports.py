"""Which ports the processes of `outrider up` get."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack

from outrider.cli.plan import HOST, PlanError

DEFAULT_BASE_PORT = 50050
DEFAULT_METRICS_PORT = 9464
"""Gateway; then scheduler, validator, draft, and further validators."""


def ports_of(choice: str, num: int, *, flag: str = "--ports", default: int = DEFAULT_BASE_PORT) -> list[int]:
    """Read --ports or its like: "default", "auto" (any that are free), or the first of `num` ports in a row.

    Raises PlanError, naming a port that is in use.
    """
    if choice == "auto":
        return _free_ports(num)
    if choice == "default":
        first = default
    elif choice.isdecimal() and 0 < int(choice) <= 65535 - num + 1:
        first = int(choice)
    else:
        raise PlanError(f"{flag} is {choice!r}; give default, auto, or the first port such as {default}")
    ports = list(range(first, first + num))
    for port in ports:
        _check_free(port, flag)
    return ports


def metrics_ports_of(choice: str, ports: Sequence[int]) -> list[int] | list[None]:
    """Read --metrics-ports for processes on `ports`: as `ports_of`, or "off".

    Raises PlanError, naming a port that is in use or given twice.
    """
    num, flag = len(ports), "--metrics-ports"
    if choice == "off":
        return [None] * num
    if choice == "auto":
        # The processes' own are free still, and would be found again.
        return [port for port in _free_ports(2 * num) if port not in ports][:num]
    chosen = ports_of(choice, num, flag=flag, default=DEFAULT_METRICS_PORT)
    if twice := set(chosen) & set(ports):
        raise PlanError(f"{flag} and --ports both want port {min(twice)}; choose {flag} auto")
    return chosen


def _check_free(port: int, flag: str) -> None:
    try:
        with socket.socket() as probe:
            # As the processes listen: a port whose last connections still linger is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise PlanError(
            f"cannot use {HOST}:{port}: {problem}; stop what uses it, or choose {flag} auto"
        ) from error


def _free_ports(num: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(num)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
