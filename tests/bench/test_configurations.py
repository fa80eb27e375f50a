import pytest

from bench.configurations import (
    CONFIGURATIONS,
    LAYOUTS,
    PLAIN,
    ConfigurationError,
    configuration,
    layout_of,
)
from outrider.wire.generation import DraftSource


def test_every_configuration_has_a_layout_and_plain_has_no_draft():
    assert all(each.layout in LAYOUTS for each in CONFIGURATIONS.values())
    assert not LAYOUTS[CONFIGURATIONS[PLAIN].layout].draft
    assert CONFIGURATIONS[PLAIN].speculation.k == 0


def test_a_configuration_can_be_written_out():
    found = configuration("drafted:k=6:source=model:min_confidence=0.4", LAYOUTS)
    assert found.layout == "drafted"
    assert (found.speculation.k, found.speculation.source) == (6, DraftSource.MODEL)
    assert found.speculation.min_confidence == 0.4
    assert found.speculation.w is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", "'fast' is not known; take some of plain"),
        ("drafted:depth=3", "'depth=3' is none of k=N"),
        ("drafted:k=many", "has a value that is none"),
        ("drafted:source=dice", "has a value that is none"),
    ],
)
def test_a_bad_configuration_is_explained(text, message):
    with pytest.raises(ConfigurationError, match=message):
        configuration(text, LAYOUTS)


def test_a_layout_is_flags_and_variables():
    found = layout_of("int4=GOMP_SPINCOUNT=500 --draft-dtype int4")
    assert (found.name, found.draft, found.flags) == ("int4", True, ("--draft-dtype", "int4"))
    assert found.environment == {"GOMP_SPINCOUNT": "500"}
    assert not layout_of("alone=--no-draft --dtype float32").draft


def test_a_layout_needs_a_name():
    with pytest.raises(ConfigurationError, match="write NAME=FLAGS"):
        layout_of("--draft-dtype int4")
