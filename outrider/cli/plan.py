"""Which processes `outrider up` starts, on which ports, with which flags."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from outrider import models
from outrider.models import ModelError, ModelFile, ModelMissing
from outrider.runtime.cores import HUGE_PAGES, SHARED_CORES

HOST = "127.0.0.1"
CPU = "cpu"
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
    # Further draft models, each with its name.
    more_drafts: tuple[tuple[str, str], ...] = ()

    @property
    def drafts(self) -> tuple[tuple[str, str], ...]:
        """All draft models, each with its name."""
        first = () if self.draft is None else ((self.draft, self.draft_name),)
        return (*first, *self.more_drafts)


@dataclass(frozen=True, slots=True)
class Numbers:
    """How many processes of each role; drafts of each draft model."""

    validators: int = 1
    drafts: int = 1
    schedulers: int = 1


@dataclass(frozen=True, slots=True)
class Devices:
    """Where the models run, as the workers' --device takes it; None: as OUTRIDER_DEVICE says, else the CPU.

    Drafts run where the target does unless they have a device of their own.
    """

    target: str | None = None
    draft: str | None = None

    @property
    def of_target(self) -> str:
        """What comes of it."""
        return self.target or os.environ.get("OUTRIDER_DEVICE", "") or CPU

    @property
    def of_draft(self) -> str:
        """What comes of it."""
        return self.draft or self.of_target


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
        if not all(parts) or len(set(parts[1:])) < len(parts[1:]):
            raise PlanError(
                f"--models is {choice!r}; give one of {', '.join(models.SETS)}, or TARGET, or TARGET,DRAFT, "
                "or several drafts, each of them once"
            )
        (target, target_name), *drafts = [_model_of(part) for part in parts]
        if not drafts:
            return Pair(target, target_name)
        return Pair(target, target_name, *drafts[0], more_drafts=tuple(drafts[1:]))
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


def num_processes(pair: Pair, numbers: Numbers) -> int:
    """How many ports are needed."""
    return 1 + numbers.schedulers + numbers.validators + numbers.drafts * len(pair.drafts)


def plan(
    pair: Pair,
    ports: Sequence[int],
    numbers: Numbers = Numbers(),
    *,
    dtype: str | None,
    draft_dtype: str | None = None,
    devices: Devices = Devices(),
    redis_url: str = "",
) -> list[ChildPlan]:
    """Lay out the processes: workers first, then the schedulers, then the gateway.

    Ports are dealt out in the order gateway, scheduler, validator, draft, and then to what there is more of.
    """
    left = iter(ports)
    gateway, schedulers, validators = next(left), [next(left)], [next(left)]
    num_drafts = numbers.drafts * len(pair.drafts)
    drafts = [next(left)] if num_drafts else []
    validators += islice(left, numbers.validators - 1)
    drafts += islice(left, num_drafts - len(drafts))
    schedulers += islice(left, numbers.schedulers - 1)
    # A model process that has the cores to itself may spin, which makes its kernels start sooner.
    is_shared = len(validators) + len(drafts) > 1
    environment = {**HUGE_PAGES, **(SHARED_CORES if is_shared else {})}
    target = (
        f"--model={pair.target}",
        *_named(pair.target_name),
        *_flag("dtype", dtype),
        *_flag("device", devices.target),
    )
    children = [
        ChildPlan(name, "services.validator", port, target, environment)
        for name, port in _numbered("validator", validators)
    ]
    drafted = (
        *_flag("dtype", draft_dtype or dtype or _small_dtype(devices)),
        *_flag("device", devices.draft or devices.target),
    )
    models = [each for each in pair.drafts for _ in range(numbers.drafts)]
    children += [
        ChildPlan(name, "services.draft", port, (f"--model={model}", *_named(shown), *drafted), environment)
        for (name, port), (model, shown) in zip(_numbered("draft", drafts), models, strict=True)
    ]
    workers = (f"--validators={_addresses(validators)}", f"--drafts={_addresses(drafts)}")
    # Not among the arguments, which everybody on the machine can read: it may hold a password.
    store = {"OUTRIDER_REDIS_URL": redis_url} if redis_url else {}
    children += [
        ChildPlan(name, "services.scheduler", port, workers, {**_one_machine(devices), **store})
        for name, port in _numbered("scheduler", schedulers)
    ]
    children.append(ChildPlan("gateway", "gateway", gateway, (f"--scheduler={_addresses(schedulers)}",)))
    return children


def _numbered(role: str, ports: Sequence[int]) -> list[tuple[str, int]]:
    """A name for each port."""
    if len(ports) == 1:
        return [(role, ports[0])]
    return [(f"{role}-{number}", port) for number, port in enumerate(ports, start=1)]


def _addresses(ports: Sequence[int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports)


def _flag(name: str, choice: str | None) -> tuple[str, ...]:
    return () if choice is None else (f"--{name}={choice}",)


def _small_dtype(devices: Devices) -> str | None:
    """What a draft on the CPU holds its weights in when nobody chose: its precision changes no output.

    A variable of the user's wins.
    """
    return "int4" if devices.of_draft == CPU and "OUTRIDER_DTYPE" not in os.environ else None


def _one_machine(devices: Devices) -> dict[str, str]:
    """What a scheduler should know of workers that it shares a machine with; the user's variables win."""
    shared = {"OUTRIDER_REOPEN_DEADLINE_S": str(REOPEN_DEADLINE_S)}
    if devices.of_target == devices.of_draft == CPU:
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
