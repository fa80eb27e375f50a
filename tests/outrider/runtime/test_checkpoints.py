"""What can be named as a model, and what is said when it can not be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outrider.runtime.checkpoints import checkpoint_folder
from outrider.runtime.errors import ModelError
from outrider.runtime.fingerprints import weight_fingerprint
from outrider.runtime.loading import load_runtime
from tests.support.models import tiny_model, with_noise

if TYPE_CHECKING:
    from pathlib import Path


def _silent(_: str) -> None:
    return


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path / "cache"))


def test_a_folder_is_used_in_place(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model")
    assert checkpoint_folder(str(folder), "float32", _silent) == folder


def test_a_gguf_file_is_converted_once(
    tmp_path: Path, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path / "converted-here"))
    said: list[str] = []
    first = checkpoint_folder(str(smollm2_path), "bfloat16", said.append)
    assert [line for line in said if "converting" in line]
    said.clear()
    assert checkpoint_folder(str(smollm2_path), "bfloat16", said.append) == first
    assert said == []
    assert not list(first.parent.glob(".converting-*"))


def _truncated(path: Path, tmp_path: Path, size: int) -> Path:
    target = tmp_path / "truncated.gguf"
    with path.open("rb") as file:
        target.write_bytes(file.read(size))
    return target


@pytest.mark.parametrize("size", [4, 1000, 1_000_000, 50_000_000])
def test_a_truncated_gguf_file_is_named(tmp_path: Path, smollm2_path: Path, size: int) -> None:
    path = _truncated(smollm2_path, tmp_path, size)
    with pytest.raises(ModelError, match="truncated or damaged") as error:
        checkpoint_folder(str(path), "bfloat16", _silent)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "cache").glob("converted/*-bfloat16-*"))


def _make(tmp_path: Path, files: dict[str, bytes]) -> str:
    folder = tmp_path / "made"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return str(folder)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "no config.json"),
        ({"config.json": b"{}"}, r"no \*\.safetensors"),
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "only pickled weights"),
    ],
)
def test_a_folder_that_is_not_a_model_says_what_is_missing(
    tmp_path: Path, files: dict[str, bytes], why: str
) -> None:
    with pytest.raises(ModelError, match=why):
        checkpoint_folder(_make(tmp_path, files), "float32", _silent)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(ModelError, match="not a GGUF file"):
        checkpoint_folder(str(tmp_path / "x.gguf"), "float32", _silent)
    (tmp_path / "x.bin").write_bytes(b"PK\x03\x04")
    with pytest.raises(ModelError, match=r"neither a folder nor a \.gguf file"):
        checkpoint_folder(str(tmp_path / "x.bin"), "float32", _silent)


@pytest.mark.parametrize("name", ["nonsense", "./not/there", "/not/there.gguf"])
def test_an_unknown_name_lists_what_could_be_meant(name: str) -> None:
    with pytest.raises(ModelError, match="hub id"):
        checkpoint_folder(name, "float32", _silent)


def test_damaged_weights_and_a_missing_tokenizer_are_told_apart(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model")
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_runtime(str(folder), dtype="float32")
    weights.write_bytes(content)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        load_runtime(str(folder), dtype="float32")


def test_other_weights_have_another_fingerprint(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model")
    same = tiny_model(tmp_path / "same")
    other = with_noise(folder, tmp_path / "other", scale=1e-3)
    assert weight_fingerprint(folder, "float32") == weight_fingerprint(same, "float32")
    assert weight_fingerprint(folder, "float32") != weight_fingerprint(other, "float32")
    assert weight_fingerprint(folder, "float32") != weight_fingerprint(folder, "bfloat16")


def test_equal_workers_have_equal_numerics_ids_and_others_do_not(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model")
    one, two = (load_runtime(str(folder), dtype="float32", kv_budget_bytes=1 << 22) for _ in range(2))
    assert one.info.numerics_id == two.info.numerics_id
    assert one.info.instance_id != two.info.instance_id
    half = load_runtime(str(folder), dtype="bfloat16", kv_budget_bytes=1 << 22)
    assert half.info.numerics_id != one.info.numerics_id
