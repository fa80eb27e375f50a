import pytest

from outrider.rpc.settings import SettingsError, read_settings
from outrider.wire.generation import DraftSource
from services.scheduler.settings import SchedulerSettings


def test_lists_are_comma_separated_in_flags_and_variables(monkeypatch):
    monkeypatch.setenv("OUTRIDER_DRAFTS", "c:3, d:4")
    settings = read_settings(SchedulerSettings, ["--validators", "a:1,b:2"])
    assert settings.validators == ("a:1", "b:2")
    assert settings.drafts == ("c:3", "d:4")


def test_no_drafts(monkeypatch):
    monkeypatch.setenv("OUTRIDER_DRAFTS", "")
    settings = read_settings(SchedulerSettings, [])
    assert settings.drafts == ()
    assert settings.source is DraftSource.NGRAM


def test_with_drafts_each_round_has_its_choice():
    assert read_settings(SchedulerSettings, []).source is None
    assert read_settings(SchedulerSettings, ["--default-source", "model"]).source is DraftSource.MODEL


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--validators", "localhost"], "--validators (OUTRIDER_VALIDATORS)"),
        (["--validators", "a:1,a:1"], "named twice"),
        (["--validators", ""], "--validators (OUTRIDER_VALIDATORS)"),
        (["--drafts", "a:99999"], "is no address"),
        (["--max-k", "65"], "--max-k (OUTRIDER_MAX_K)"),
        (["--default-source", "magic"], "--default-source (OUTRIDER_DEFAULT_SOURCE)"),
        (["--failover", "maybe"], "--failover (OUTRIDER_FAILOVER)"),
        (["--policy", "clever"], "--policy (OUTRIDER_POLICY)"),
        (["--redis-url", "http://u:geheim@x"], "--redis-url (OUTRIDER_REDIS_URL)"),
        (["--alerts", "/no/such/file"], "--alerts (OUTRIDER_ALERTS)"),
        (["--draft-opens", "never"], "--draft-opens (OUTRIDER_DRAFT_OPENS)"),
        (["--no-such-flag", "1"], "--no-such-flag"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_setting(arguments, words):
    with pytest.raises(SettingsError) as raised:
        read_settings(SchedulerSettings, arguments)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_under_twenty_fields():
    assert len(SchedulerSettings.model_fields) < 20


def test_a_secret_that_can_not_be_used_is_not_repeated():
    with pytest.raises(SettingsError, match="write redis://HOST") as refused:
        read_settings(SchedulerSettings, ["--redis-url", "http://u:geheim@x"])
    assert "geheim" not in str(refused.value)
