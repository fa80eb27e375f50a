from dataclasses import replace

import pytest

from outrider import models
from outrider.cli.plan import (
    Devices,
    Numbers,
    Pair,
    PlanError,
    num_processes,
    pair_of,
    plan,
)

PAIR = Pair("target", "T", "draft", "D")


def test_a_set_is_its_target_and_its_draft(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "resolve", lambda name: tmp_path / name)
    pair = pair_of("qwen-coder")
    assert pair.target == str(tmp_path / "qwen-coder-1.5b")
    assert (pair.target_name, pair.draft_name) == ("qwen-coder-1.5b", "qwen-coder-0.5b")


@pytest.mark.parametrize(
    ("choice", "pair"),
    [
        ("/models/a", Pair("/models/a")),
        ("org/a , org/b", Pair("org/a", "", "org/b", "")),
    ],
)
def test_paths_and_hub_ids_are_passed_on(choice, pair):
    assert pair_of(choice) == pair


def test_a_fetched_model_can_be_either_side(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "resolve", lambda name: tmp_path / name)
    assert pair_of("smollm2,org/b") == Pair(str(tmp_path / "smollm2"), "smollm2", "org/b", "")


def test_there_may_be_several_of_every_role():
    pair = pair_of("/models/a,/models/b,/models/c")
    numbers = Numbers(validators=2, drafts=2, schedulers=2)
    ports = list(range(1, num_processes(pair, numbers) + 1))
    children = plan(pair, ports, numbers, dtype=None, redis_url="redis://u:secret@h:1/0")
    assert {child.name: child.port for child in children} == {
        "gateway": 1,
        "scheduler-1": 2,
        "validator-1": 3,
        "draft-1": 4,
        "validator-2": 5,
        "draft-2": 6,
        "draft-3": 7,
        "draft-4": 8,
        "scheduler-2": 9,
    }
    by_name = {child.name: child for child in children}
    models = [by_name[f"draft-{number}"].arguments[0] for number in (1, 2, 3, 4)]
    assert models == ["--model=/models/b", "--model=/models/b", "--model=/models/c", "--model=/models/c"]
    assert by_name["gateway"].arguments == ("--scheduler=127.0.0.1:2,127.0.0.1:9",)
    for number in (1, 2):
        scheduler = by_name[f"scheduler-{number}"]
        assert scheduler.arguments[1] == "--drafts=127.0.0.1:4,127.0.0.1:6,127.0.0.1:7,127.0.0.1:8"
        assert scheduler.environment["OUTRIDER_REDIS_URL"] == "redis://u:secret@h:1/0"
    # Arguments are for everybody on the machine to read.
    assert not any("secret" in argument for child in children for argument in child.arguments)


@pytest.mark.parametrize("choice", ["/a,/b,/b", "/a,,/b", ","])
def test_models_that_make_no_sense_are_refused(choice):
    with pytest.raises(PlanError, match="several drafts, each of them once"):
        pair_of(choice)


def test_the_default_ports_are_those_of_the_services():
    children = plan(PAIR, list(range(50050, 50056)), Numbers(validators=3), dtype="float32")
    assert [(child.name, child.port) for child in children] == [
        ("validator-1", 50052),
        ("validator-2", 50054),
        ("validator-3", 50055),
        ("draft", 50053),
        ("scheduler", 50051),
        ("gateway", 50050),
    ]
    flags = {child.name: child.arguments for child in children}
    assert flags["validator-2"] == ("--model=target", "--served-name=T", "--dtype=float32")
    assert flags["draft"] == ("--model=draft", "--served-name=D", "--dtype=float32")
    assert flags["scheduler"] == (
        "--validators=127.0.0.1:50052,127.0.0.1:50054,127.0.0.1:50055",
        "--drafts=127.0.0.1:50053",
    )
    assert flags["gateway"] == ("--scheduler=127.0.0.1:50051",)
    # Longer than a validator that died takes to be there again; not a flag, so that the user's variable wins.
    assert children[-2].environment["OUTRIDER_REOPEN_DEADLINE_S"] == "60"


def test_a_draft_on_the_same_cores_reads_the_prompt_after_the_target(monkeypatch):
    def environment():
        return plan(PAIR, [1, 2, 3, 4], Numbers(validators=1), dtype=None)[-2].environment

    monkeypatch.delenv("OUTRIDER_DEVICE", raising=False)
    assert environment()["OUTRIDER_DRAFT_OPENS"] == "after"
    monkeypatch.setenv("OUTRIDER_DEVICE", "cuda:0")
    assert "OUTRIDER_DRAFT_OPENS" not in environment()


@pytest.mark.parametrize(
    ("variable", "target", "draft", "effective"),
    [
        (None, None, None, (None, None)),
        ("cuda:0", None, None, (None, None)),
        (None, "cuda:0", None, ("cuda:0", "cuda:0")),
        ("cuda:0", None, "cpu", (None, "cpu")),
        (None, "cuda:0", "cuda:1", ("cuda:0", "cuda:1")),
    ],
)
def test_c65_the_drafts_device_is_a_setting_of_its_own(monkeypatch, variable, target, draft, effective):
    monkeypatch.delenv("OUTRIDER_DEVICE", raising=False)
    if variable:
        monkeypatch.setenv("OUTRIDER_DEVICE", variable)
    children = plan(PAIR, [1, 2, 3, 4], dtype=None, devices=Devices(target, draft))
    given = {
        child.name: [each.partition("=")[2] for each in child.arguments if each.startswith("--device=")]
        for child in children
    }
    assert given == {
        "validator": [effective[0]] if effective[0] else [],
        "draft": [effective[1]] if effective[1] else [],
        "scheduler": [],
        "gateway": [],
    }


def test_what_suits_the_cpu_is_chosen_where_the_model_is_on_it(monkeypatch):
    def chosen(target, draft):
        *_, drafting, scheduler, _ = plan(PAIR, [1, 2, 3, 4], dtype=None, devices=Devices(target, draft))
        return "--dtype=int4" in drafting.arguments, "OUTRIDER_DRAFT_OPENS" in scheduler.environment

    for name in ("OUTRIDER_DEVICE", "OUTRIDER_DTYPE"):
        monkeypatch.delenv(name, raising=False)
    assert chosen(None, None) == (True, True)
    # A draft on the CPU beside a target on a GPU has the cores to itself.
    assert chosen("cuda:0", "cpu") == (True, False)
    assert chosen("cuda:0", "cuda:1") == (False, False)
    assert chosen("cpu", "cuda:0") == (False, False)


def test_without_a_draft_there_is_no_draft_process():
    pair = replace(PAIR, target_name="", draft=None)
    assert num_processes(pair, Numbers(validators=2)) == 4
    children = plan(pair, [1, 2, 3, 4], Numbers(validators=2), dtype=None)
    assert [(child.name, child.port) for child in children] == [
        ("validator-1", 3),
        ("validator-2", 4),
        ("scheduler", 2),
        ("gateway", 1),
    ]
    assert children[0].arguments == ("--model=target",)
    assert children[2].arguments[1] == "--drafts="


def test_the_flags_are_those_that_the_processes_read():
    """A flag that is none of the process's settings would only show at a real start."""
    from gateway.settings import GatewaySettings
    from outrider.rpc.settings import read_settings
    from services.draft.settings import DraftSettings
    from services.scheduler.settings import SchedulerSettings
    from services.validator.settings import ValidatorSettings

    kinds = {
        "gateway": GatewaySettings,
        "services.draft": DraftSettings,
        "services.scheduler": SchedulerSettings,
        "services.validator": ValidatorSettings,
    }
    for pair in (PAIR, replace(PAIR, draft=None)):
        for child in plan(
            pair,
            [1, 2, 3, 4][: num_processes(pair, Numbers())],
            Numbers(validators=1),
            dtype="float32",
        ):
            settings = read_settings(
                kinds[child.module], [f"--port={child.port}", "--ready-file=x", *child.arguments]
            )
            assert settings.port == child.port
            if child.module == "services.scheduler":
                names = {f"OUTRIDER_{name.upper()}" for name in type(settings).model_fields}
                assert names >= child.environment.keys()
                assert len(settings.drafts) == (pair.draft is not None)
