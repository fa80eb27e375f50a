from pathlib import Path

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes

from outrider.telemetry import Attr, GenAi, General, SpanName, chat_span_name
from outrider.telemetry.names import ATTRIBUTES, is_declared_attribute, is_declared_span


def test_the_gen_ai_keys_exist_in_the_conventions():
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    assert set(GenAi) <= known
    assert error_attributes.ERROR_TYPE == General.ERROR_TYPE


def test_own_keys_carry_the_own_prefix():
    assert all(key.startswith("outrider.") for key in Attr)
    assert len(ATTRIBUTES) == len(Attr) + len(GenAi) + len(General)


def test_the_guide_names_every_span_and_every_own_key():
    guide = (Path(__file__).parents[3] / "docs" / "tracing.md").read_text(encoding="utf-8")
    assert [name for name in (*SpanName, *Attr) if f"`{name}`" not in guide] == []


def test_what_is_declared_is_known_and_nothing_else():
    assert is_declared_attribute("outrider.session_id")
    assert not is_declared_attribute("outrider.sessionid")
    assert is_declared_span(SpanName.ROUND)
    assert is_declared_span(chat_span_name("smollm2"))
    assert not is_declared_span("round")
