"""Models that can not keep the promise are refused with the reason, or marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from transformers import AutoConfig, LlamaConfig, T5Config

from outrider.runtime.errors import ModelError, UnsupportedModel
from outrider.runtime.families import obstacles_to_exactness, obstacles_to_serving
from outrider.runtime.loading import load_runtime
from outrider.wire.worker import Exactness
from tests.support.models import tiny_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("family", "why"),
    [("moe", "mixture of experts"), ("longrope", "longest position in the batch")],
)
def test_a_family_that_looks_at_its_batch_is_refused_with_the_reason(
    tmp_path: Path, family: str, why: str
) -> None:
    folder = str(tiny_model(tmp_path, family))
    with pytest.raises(UnsupportedModel, match=why) as refusal:
        load_runtime(folder, dtype="float32", kv_budget_bytes=1 << 22)
    assert "--allow-near-tie" in str(refusal.value)


@pytest.mark.parametrize("family", ["moe", "longrope"])
def test_it_is_served_as_near_tie_on_request(tmp_path: Path, family: str) -> None:
    runtime = load_runtime(
        str(tiny_model(tmp_path, family)), dtype="float32", kv_budget_bytes=1 << 22, allow_near_tie=True
    )
    assert runtime.info.exactness is Exactness.NEAR_TIE


@pytest.mark.parametrize("rope_type", ["default", "linear", "llama3"])
def test_static_rope_is_no_obstacle(rope_type: str) -> None:
    rope = {
        "rope_type": rope_type,
        "rope_theta": 10000.0,
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    }
    assert obstacles_to_exactness(LlamaConfig(rope_parameters=rope)) == []


def test_dynamic_rope_is_an_obstacle() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    assert "dynamic" in obstacles_to_exactness(LlamaConfig(rope_parameters=rope))[0]


@pytest.mark.parametrize("model_type", ["qwen3_next", "falcon_mamba", "jamba"])
def test_c48_state_that_can_not_be_rewound_is_refused(model_type: str) -> None:
    config = AutoConfig.for_model(model_type)
    assert obstacles_to_serving(config) != []


def test_encoder_decoder_is_refused() -> None:
    assert "encoder-decoder" in obstacles_to_serving(T5Config())[0]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"dtype": "int3"}, "dtype 'int3' is not one of"),
        ({"device": "tpu"}, "device 'tpu'"),
        ({"device": "cuda:99"}, "torch sees"),
        ({"kv_budget_bytes": 100}, "holds no page"),
        ({"kv_budget_bytes": 70_000}, "too small for the start-up test"),
    ],
)
def test_a_setting_that_can_not_be_had_is_named(
    tmp_path: Path, arguments: dict[str, object], why: str
) -> None:
    folder = str(tiny_model(tmp_path))
    with pytest.raises(ModelError, match=why):
        load_runtime(folder, **{"dtype": "float32", **arguments})  # type: ignore[arg-type]  # mixed on purpose
