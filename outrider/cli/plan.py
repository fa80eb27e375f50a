"""Which processes `outrider up` starts, on which ports, with which flags."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from outrider import models
from outrider.models import ModelError, ModelFile, ModelMissing
from outrider.runtime.cores import HUGE_PAGES, SHARED_CORES

HOST = "127.0.0.1"
DEFAULT_BASE_PORT = 50050
DEFAULT_METRICS_PORT = 9464
"""Gateway; then scheduler, validator, draft, and further validators."""
REOPEN_DEADLINE_S = 60
"""A validator that died is started again: sessions wait for it as long as a large model may take to load."""


class PlanError(Exception):
    """The flags ask for something that can not be started; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and maybe a draft, as the workers' --model takes them; names are for showing."""

    target: str
    target_name: str = ""
    draft: str | None = None
    draft_name: str = ""


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """One process: `python -m module *arguments`, on HOST:port, with /metrics on HOST:metrics_port."""

    name: str
    module: str
    port: int
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    # None: no metrics.
    metrics_port: int | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.port}"

    @property
    def metrics_address(self) -> str:
        """Where it is scraped; empty when it is not."""
        return "" if self.metrics_port is None else f"{HOST}:{self.metrics_port}"


def pair_of(choice: str) -> Pair:
    """Read --models: the name of a set, or TARGET[,DRAFT] where each is a fetched model, a hub id or a path.

    Raises PlanError; for a model that is not fetched it names the command that fetches it.
    """
    try:
        if choice in models.SETS:
            chosen = models.SETS[choice]
            target, target_name = _model_of(chosen.target.name)
            if chosen.draft is None:
                return Pair(target, target_name)
            return Pair(target, target_name, *_model_of(chosen.draft.name))
        parts = [part.strip() for part in choice.split(",")]
        if not all(parts) or len(parts) > 2:
            raise PlanError(
                f"--models is {choice!r}; give one of {', '.join(models.SETS)}, or TARGET, or TARGET,DRAFT"
            )
        target, target_name = _model_of(parts[0])
        return (
            Pair(target, target_name) if len(parts) == 1 else Pair(target, target_name, *_model_of(parts[1]))
        )
    except ModelMissing as error:
        wanted = choice if choice in models.SETS else error.name
        raise PlanError(
            f"model {error.name!r} is not fetched; run `outrider models fetch {wanted}`"
        ) from error
    except ModelError as error:
        raise PlanError(str(error)) from error


def _model_of(name: str) -> tuple[str, str]:
    """What --model gets, and a name to show if the model's own would say less."""
    if name not in models.MODELS:
        return name, ""
    file: ModelFile = models.MODELS[name]
    return str(models.resolve(file.name)), file.name


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


def num_processes(pair: Pair, num_validators: int) -> int:
    """How many ports are needed."""
    return 2 + num_validators + (pair.draft is not None)


def plan(
    pair: Pair,
    ports: Sequence[int],
    *,
    num_validators: int,
    dtype: str | None,
    draft_dtype: str | None = None,
) -> list[ChildPlan]:
    """Lay out the processes: workers first, then the scheduler, then the gateway."""
    gateway, scheduler, first_validator, *more = ports
    draft_ports = [more.pop(0)] if pair.draft is not None else []
    validator_ports = [first_validator, *more]
    # A model process that has the cores to itself may spin, which makes its kernels start sooner.
    is_shared = len(validator_ports) + len(draft_ports) > 1
    environment = {**HUGE_PAGES, **(SHARED_CORES if is_shared else {})}
    children = [
        ChildPlan(
            "validator" if num_validators == 1 else f"validator-{number}",
            "services.validator",
            port,
            (f"--model={pair.target}", *_named(pair.target_name), *_dtype(dtype)),
            environment,
        )
        for number, port in enumerate(validator_ports, start=1)
    ]
    children += [
        ChildPlan(
            "draft",
            "services.draft",
            port,
            (
                f"--model={pair.draft}",
                *_named(pair.draft_name),
                *_dtype(draft_dtype or dtype or _small_dtype()),
            ),
            environment,
        )
        for port in draft_ports
    ]
    workers = (
        f"--validators={','.join(f'{HOST}:{port}' for port in validator_ports)}",
        f"--drafts={','.join(f'{HOST}:{port}' for port in draft_ports)}",
    )
    children.append(ChildPlan("scheduler", "services.scheduler", scheduler, workers, _one_machine()))
    children.append(ChildPlan("gateway", "gateway", gateway, (f"--scheduler={HOST}:{scheduler}",)))
    return children


def _dtype(choice: str | None) -> tuple[str, ...]:
    return () if choice is None else (f"--dtype={choice}",)


def _small_dtype() -> str | None:
    """What a draft on the CPU holds its weights in when nobody chose: its precision changes no output.

    A variable of the user's wins.
    """
    return "int4" if _on_cpu() and "OUTRIDER_DTYPE" not in os.environ else None


def _on_cpu() -> bool:
    return os.environ.get("OUTRIDER_DEVICE", "cpu") == "cpu"


def _one_machine() -> dict[str, str]:
    """What a scheduler should know of workers that it shares a machine with; the user's variables win."""
    shared = {"OUTRIDER_REOPEN_DEADLINE_S": str(REOPEN_DEADLINE_S)}
    if _on_cpu():
        # Draft and validator have the same cores: reading the prompt side by side delays the first token.
        shared["OUTRIDER_DRAFT_OPENS"] = "after"
    return shared


def with_metrics(
    plans: Sequence[ChildPlan], ports: Sequence[int], metrics_ports: Sequence[int | None]
) -> list[ChildPlan]:
    """The same processes, the one on ports[i] scraped on metrics_ports[i]."""
    chosen = dict(zip(ports, metrics_ports, strict=True))
    return [replace(each, metrics_port=chosen[each.port]) for each in plans]


def _named(name: str) -> tuple[str, ...]:
    return (f"--served-name={name}",) if name else ()
