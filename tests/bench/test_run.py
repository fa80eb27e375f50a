"""One real run: a deployment, a peer, a result folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE_FOLDER = Path(__file__).parents[2]


def _bench(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=SOURCE_FOLDER,
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )


@pytest.mark.usefixtures("smollm2_path")
def test_a_short_run_compares_measures_and_writes(tmp_path):
    ended = _bench(
        *("--models", "smollm2", "--part", "speedup", "--workloads", "json", "--prompts-per-workload", "1"),
        *("--configs", "plain,plain:k=4:source=ngram", "--peers", "hf-plain", "--tokens", "8"),
        *("--output", str(tmp_path)),
    )
    assert ended.returncode == 0, ended.stderr
    (folder,) = tmp_path.iterdir()
    found = json.loads((folder / "result.json").read_text())["parts"]["speedup"]
    assert [turn["subject"] for turn in found["turns"]] == ["plain", "plain:k=4:source=ngram", "hf-plain"]
    assert all(turn["tokens"] == 8 for turn in found["turns"][:2])
    assert found["summary"]["json"]["plain"]["tau"] == 1.0
    assert found["peak_memory_bytes"]["plain/validator"] > 100 << 20
    assert found["machine"]["cores"] >= 1
    assert (folder / "speedup.png").is_file()
    assert "k = 0 / Hugging Face plain: json" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--part", "naps"], "part 'naps' is not known"),
        (["--peers", "abacus"], "peer 'abacus' is not known"),
        (["--configs", "fast"], "configuration 'fast' is not known"),
        (["--show", "/nowhere"], "/nowhere holds no result.json"),
        (["--prompts", "/nowhere.jsonl"], "/nowhere.jsonl cannot be read"),
    ],
)
def test_what_can_not_be_run_is_said_in_one_line(arguments, message):
    ended = _bench(*arguments)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ")
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
