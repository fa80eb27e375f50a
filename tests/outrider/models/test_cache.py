from pathlib import Path

import platformdirs
import pytest

from outrider.models import MODELS, ModelMissing, UnknownModel, cache_dir, is_fetched, path_of, resolve

MODEL = MODELS["smollm2"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_the_variable_moves_the_cache(cache):
    assert cache_dir() == cache
    assert path_of(MODEL) == cache / "models" / "smollm2" / MODEL.file_name


def test_a_tilde_means_the_home_folder(monkeypatch):
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", "~/elsewhere")
    assert cache_dir() == Path.home() / "elsewhere"


def test_without_it_the_platform_decides(monkeypatch):
    monkeypatch.delenv("OUTRIDER_CACHE_DIR", raising=False)
    assert cache_dir() == Path(platformdirs.user_cache_dir("outrider"))


def test_a_missing_model_names_the_command_that_fetches_it(cache):
    with pytest.raises(ModelMissing, match=r"is not there; run `outrider models fetch smollm2`"):
        resolve("smollm2")


def test_a_file_of_another_size_is_no_model(cache):
    path_of(MODEL).parent.mkdir(parents=True)
    path_of(MODEL).write_bytes(b"half")
    assert not is_fetched(MODEL)
    with pytest.raises(ModelMissing, match=rf"has 4 bytes instead of {MODEL.size_bytes}; run "):
        resolve("smollm2")


def test_a_whole_file_is_found(cache):
    path_of(MODEL).parent.mkdir(parents=True)
    with path_of(MODEL).open("wb") as file:
        file.truncate(MODEL.size_bytes)  # sparse: only the size counts here
    assert is_fetched(MODEL)
    assert resolve("smollm2") == path_of(MODEL)


def test_a_set_of_two_models_is_no_model(cache):
    with pytest.raises(UnknownModel, match=r"qwen-coder-1\.5b"):
        resolve("qwen-coder")
