import io

import pytest
from rich.console import Console

from bench import plots, report, results
from bench.command import PARTS


@pytest.fixture
def console():
    return Console(width=200, file=io.StringIO())


def test_every_part_has_a_table(document, console):
    for part in PARTS:
        before = console.file.tell()
        report.show(console, part, document["parts"][part])
        assert console.file.tell() > before
    text = console.file.getvalue()
    assert "2.10 (1.89-2.31)" in text
    assert "75%" in text
    # Accepted 9 of 10, 6 of 10, 0 of 8.
    assert "90% 60% 0%" in text


def test_the_target_table_has_must_aim_and_verdict(document, console):
    report.show_targets(console, document)
    lines = console.file.getvalue().splitlines()
    (row,) = [line for line in lines if line.startswith("best / own plain: json")]
    assert row.split()[5:] == ["2", "3.8", "2.50", "(2.25-2.75)", "must", "model-4"]
    (row,) = [line for line in lines if line.startswith("best / own plain: code")]
    assert "not measured" in row


def test_pictures_are_written(document, tmp_path):
    written = plots.draw(document, tmp_path)
    assert [path.name for path in written] == [
        "speedup.png",
        "speedup-sampled.png",
        "concurrency.png",
        "rounds.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_parts_are_replaced_one_by_one(tmp_path):
    assert results.load(tmp_path) == {"parts": {}}
    results.store(tmp_path, "speedup", {"num_tokens": 1}, models="a,b")
    results.store(tmp_path, "memory", {"peak_bytes": 2}, models="a,b")
    results.store(tmp_path, "speedup", {"num_tokens": 3}, models="a,b")
    assert results.load(tmp_path)["parts"] == {
        "speedup": {"models": "a,b", "num_tokens": 3},
        "memory": {"models": "a,b", "peak_bytes": 2},
    }


def test_the_folder_is_named_after_the_models(tmp_path):
    name = results.folder_for(tmp_path, "some/Target,/models/draft").name
    assert name.endswith("-Target-draft")
