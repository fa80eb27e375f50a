"""Which processes `outrider up` starts, on which ports, with which flags."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from outrider import models
from outrider.models import ModelError, ModelFile, ModelMissing
from outrider.runtime.cores import SHARED_CORES

HOST = "127.0.0.1"
DEFAULT_BASE_PORT = 50050
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
    """One process: `python -m module *arguments`, listening on HOST:port."""

    name: str
    module: str
    port: int
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.port}"


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


def ports_of(choice: str, num: int) -> list[int]:
    """Read --ports: "default", "auto" (any that are free), or the first of `num` ports in a row.

    Raises PlanError, naming a port that is in use.
    """
    if choice == "auto":
        return _free_ports(num)
    if choice == "default":
        first = DEFAULT_BASE_PORT
    elif choice.isdecimal() and 0 < int(choice) <= 65535 - num + 1:
        first = int(choice)
    else:
        raise PlanError(f"--ports is {choice!r}; give default, auto, or the first port such as 50050")
    ports = list(range(first, first + num))
    for port in ports:
        _check_free(port)
    return ports


def _check_free(port: int) -> None:
    try:
        with socket.socket() as probe:
            # As the processes listen: a port whose last connections still linger is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise PlanError(
            f"cannot use {HOST}:{port}: {problem}; stop what uses it, or choose --ports auto"
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


def plan(pair: Pair, ports: Sequence[int], *, num_validators: int, dtype: str | None) -> list[ChildPlan]:
    """Lay out the processes: workers first, then the scheduler, then the gateway."""
    gateway, scheduler, first_validator, *more = ports
    draft_ports = [more.pop(0)] if pair.draft is not None else []
    validator_ports = [first_validator, *more]
    common = () if dtype is None else (f"--dtype={dtype}",)
    children = [
        ChildPlan(
            "validator" if num_validators == 1 else f"validator-{number}",
            "services.validator",
            port,
            (f"--model={pair.target}", *_named(pair.target_name), *common),
            SHARED_CORES,
        )
        for number, port in enumerate(validator_ports, start=1)
    ]
    children += [
        ChildPlan(
            "draft",
            "services.draft",
            port,
            (f"--model={pair.draft}", *_named(pair.draft_name), *common),
            SHARED_CORES,
        )
        for port in draft_ports
    ]
    workers = (
        f"--validators={','.join(f'{HOST}:{port}' for port in validator_ports)}",
        f"--drafts={','.join(f'{HOST}:{port}' for port in draft_ports)}",
    )
    patience = {"OUTRIDER_REOPEN_DEADLINE_S": str(REOPEN_DEADLINE_S)}
    children.append(ChildPlan("scheduler", "services.scheduler", scheduler, workers, patience))
    children.append(ChildPlan("gateway", "gateway", gateway, (f"--scheduler={HOST}:{scheduler}",)))
    return children


def _named(name: str) -> tuple[str, ...]:
    return (f"--served-name={name}",) if name else ()
