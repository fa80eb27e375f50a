from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from outrider.runtime.compiling import COMPILER_VARIABLE, NoNativeLibrary
from outrider.runtime.loading import load_runtime
from outrider.runtime.native import NativeForward, native_library
from outrider.runtime.sequence import Segment
from outrider.runtime.weights import TiledLinear
from outrider.runtime.weights.int4 import GROUP, MIDDLE, quantize
from outrider.wire.worker import Exactness
from tests.support.models import tiny_model

TOKENS = tuple(np.random.default_rng(7).integers(4, 300, 90).tolist())


@pytest.fixture(scope="module", autouse=True)
def library():
    try:
        return native_library()
    except NoNativeLibrary as error:
        pytest.skip(str(error))


def logits_of(folder, *, num_threads=2) -> np.ndarray:
    runtime = load_runtime(str(folder), dtype="int4", num_threads=num_threads, kv_budget_bytes=8 << 20)
    assert isinstance(runtime._forward, NativeForward)
    assert runtime.info.exactness == Exactness.BITWISE
    sequence = runtime.new_sequence()
    runtime.reserve(sequence, len(TOKENS))
    return runtime.step([Segment(sequence, TOKENS, wanted=tuple(range(len(TOKENS))))])[0]


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_it_computes_what_the_models_own_code_does_with_the_same_weights(family, tmp_path):
    folder = tiny_model(tmp_path / "model", family)
    # Stored as it is loaded: bfloat16.
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).float()
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            levels, scales_and_zeros = quantize(layer.weight.detach(), GROUP)
            scale, zero = scales_and_zeros.float().unbind(-1)
            groups = levels.view(len(levels), -1, GROUP).float() - MIDDLE
            exact = (groups * scale.T[..., None] + zero.T[..., None]).flatten(1)
            layer.weight = torch.nn.Parameter(exact)
    with torch.inference_mode():
        expected = model(torch.tensor([TOKENS])).logits[0].numpy()
    found = logits_of(folder)
    # Left are the inputs' 8 bits and the KV's bfloat16.
    error = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert np.median(error) < 0.05
    assert error.max() < 0.2


def test_bits_do_not_depend_on_the_number_of_threads(tmp_path):
    folder = tiny_model(tmp_path / "model", "qwen2")
    before = torch.get_num_threads()
    try:
        alone, together = logits_of(folder, num_threads=1), logits_of(folder, num_threads=3)
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(alone, together)


def test_a_model_of_another_family_runs_on_torchs_kernels(tmp_path):
    runtime = load_runtime(str(tiny_model(tmp_path, "gemma2")), dtype="int4", kv_budget_bytes=8 << 20)
    assert not isinstance(runtime._forward, NativeForward)


@pytest.fixture
def forgetful(monkeypatch, tmp_path):
    """The library has not been compiled yet."""
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path / "cache"))
    native_library.cache_clear()
    yield tmp_path / "cache"
    native_library.cache_clear()


def test_it_is_compiled_once(forgetful):
    native_library()
    (made,) = (forgetful / "native").iterdir()
    written = made.stat().st_mtime_ns
    native_library.cache_clear()
    native_library()
    assert [made.stat().st_mtime_ns] == [path.stat().st_mtime_ns for path in (forgetful / "native").iterdir()]
    assert made.stat().st_mtime_ns == written


def test_without_a_compiler_the_model_runs_on_torchs_kernels(forgetful, monkeypatch, tmp_path):
    monkeypatch.setenv(COMPILER_VARIABLE, "no-such-compiler")
    with pytest.raises(NoNativeLibrary, match="no C\\+\\+ compiler was found"):
        native_library()
    runtime = load_runtime(str(tiny_model(tmp_path / "model")), dtype="int4", kv_budget_bytes=8 << 20)
    assert not isinstance(runtime._forward, NativeForward)
    assert runtime.info.exactness == Exactness.BITWISE


def test_a_compiler_that_fails_is_told_of(forgetful, monkeypatch):
    monkeypatch.setenv(COMPILER_VARIABLE, shutil.which("false"))
    with pytest.raises(NoNativeLibrary, match="false failed"):
        native_library()
    assert not list((forgetful / "native").iterdir())


def test_without_our_products_bfloat16_is_as_exact(monkeypatch, tmp_path):
    monkeypatch.setattr("outrider.runtime.weights.obstacle_to_tiles", lambda: "left out here")
    runtime = load_runtime(str(tiny_model(tmp_path / "model")), dtype="bfloat16", kv_budget_bytes=8 << 20)
    assert not any(isinstance(each, TiledLinear) for each in runtime._forward._model.modules())
    assert runtime.info.exactness == Exactness.BITWISE
