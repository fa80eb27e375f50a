"""The workers' settings, as flags."""

from __future__ import annotations

import pytest

from outrider.rpc.settings import SettingsError, read_settings
from outrider.worker.settings import WorkerSettings
from services.draft.settings import DraftSettings
from services.validator.settings import ValidatorSettings


def test_defaults_and_ports():
    validator = read_settings(ValidatorSettings, ["--model", "folder"])
    draft = read_settings(DraftSettings, ["--model", "folder"])
    assert (validator.port, draft.port) == (50052, 50053)
    assert (validator.host, validator.dtype, validator.device) == ("127.0.0.1", "bfloat16", "cpu")
    # Exactness is the target's promise; a draft may be anything.
    assert (validator.allow_near_tie, draft.allow_near_tie) == (False, True)
    assert len(WorkerSettings.model_fields) < 20


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--model"),
        (["--model", ""], "--model"),
        (["--model", "m", "--dtype", "float8"], "--dtype"),
        (["--model", "m", "--token-budget", "64"], "--token-budget"),
        (["--model", "m", "--token-budget", "2048"], "--token-budget"),
        (["--model", "m", "--prefill-chunk", "8"], "--prefill-chunk"),
        (["--model", "m", "--lease-s", "-1"], "--lease-s"),
        (["--model", "m", "--kv-budget-mib", "0"], "--kv-budget-mib"),
        (["--model", "m", "--num-threads", "none"], "--num-threads"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_field(arguments: list[str], named: str):
    with pytest.raises(SettingsError) as caught:
        read_settings(ValidatorSettings, arguments)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_environment_sets_what_flags_do_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OUTRIDER_TOKEN_BUDGET", "1024")
    monkeypatch.setenv("OUTRIDER_MODEL", "from-environment")
    settings = read_settings(ValidatorSettings, ["--lease-s", "2.5"])
    assert (settings.model, settings.limits.token_budget, settings.lease_s) == ("from-environment", 1024, 2.5)


@pytest.mark.parametrize(
    ("arguments", "budget", "chunk"),
    [
        ([], 512, 256),
        (["--device", "cuda:1"], 1024, 512),
        (["--token-budget", "400"], 400, 200),
        (["--prefill-chunk", "64"], 512, 64),
        (["--device", "cuda", "--token-budget", "512", "--prefill-chunk", "300"], 512, 300),
    ],
)
def test_what_a_forward_takes_follows_the_device_unless_it_is_given(
    arguments: list[str], budget: int, chunk: int
):
    limits = read_settings(ValidatorSettings, ["--model", "m", *arguments]).limits
    assert (limits.token_budget, limits.prefill_chunk) == (budget, chunk)


def test_prefixes_are_kept_and_shared_within_a_tenant_unless_it_is_said():
    def sharing(*flags: str) -> tuple[bool, bool]:
        chosen = read_settings(DraftSettings, ["--model", "m", *flags]).limits.sharing
        return chosen.enabled, chosen.across_tenants

    assert sharing() == (True, False)
    assert sharing("--prefix-across-tenants") == (True, True)
    assert sharing("--no-prefix-cache") == (False, False)
