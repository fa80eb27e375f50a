import pytest
from typer.testing import CliRunner

from outrider import models
from outrider.cli.main import app
from outrider.models import Progress


def invoke(*arguments):
    return CliRunner().invoke(app, ["models", *arguments])


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path))


def test_the_list_names_every_set_and_what_is_here():
    before = invoke("list").stdout
    assert [line.split()[0] for line in before.splitlines()[1:]] == ["smollm2", "qwen-coder", "qwen-coder"]
    assert " yes " not in before
    path = models.path_of(models.MODELS["smollm2"])
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(models.MODELS["smollm2"].size_bytes)
    assert " yes " in invoke("list").stdout.splitlines()[1]


def test_an_unknown_set_is_one_line():
    result = invoke("fetch", "gpt")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: unknown model 'gpt': the catalogue holds smollm2")
    assert result.stderr.count("\n") == 1


def test_a_fetch_tells_its_steps_and_prints_the_paths(monkeypatch, tmp_path):
    def fetch(name, *, progress):
        for step, done in (("part 1 of 2", 0), ("part 1 of 2", 5), ("part 2 of 2", 9)):
            progress(Progress(name, step, done, 10))
        return (tmp_path / "a.gguf",)

    monkeypatch.setattr(models, "fetch", fetch)
    result = invoke("fetch", "smollm2")
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'a.gguf'}\n")
    assert result.stderr == "smollm2: part 1 of 2\nsmollm2: part 2 of 2\n"


def test_a_full_disk_is_one_line(monkeypatch):
    def fetch(name, *, progress):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "fetch", fetch)
    result = invoke("fetch", "smollm2")
    assert (result.exit_code, result.stderr) == (1, "error: [Errno 28] No space left on device\n")
