import sys

import pytest

from bench.deployments import StartFailed
from bench.peers import llama_cpp
from bench.peers.one_process import OneProcess
from bench.peers.peer import Peer, PeerFailed
from tests.support.models import tiny_model

PROGRAM = """
from bench.peers.serving import serve

def answer(question):
    print("to standard output, where only answers belong")
    return {"ids": [[len(question["prompts"][0])]]}

serve({"version": "1"}, answer)
"""


async def test_a_peer_answers_until_it_is_stopped(tmp_path):
    peer = await Peer.start("echo", [sys.executable, "-c", PROGRAM], tmp_path)
    try:
        assert peer.about == {"version": "1"}
        assert await peer.ask({"prompts": [[1, 2, 3]]}) == {"ids": [[3]]}
        with pytest.raises(PeerFailed, match="echo: KeyError"):
            await peer.ask({})
        assert await peer.ask({"prompts": [[]]}) == {"ids": [[0]]}
    finally:
        await peer.stop()
    assert "only answers belong" in (tmp_path / "echo.log").read_text()


async def test_a_peer_that_can_not_start_says_why(tmp_path):
    with pytest.raises(StartFailed, match="broken did not start: broken has ended: no such model"):
        await Peer.start("broken", [sys.executable, "-c", "raise SystemExit('no such model')"], tmp_path)


def test_llama_cpp_needs_gguf_files(tmp_path):
    assert llama_cpp.command(str(tmp_path), None) is None
    target = tmp_path / "model.gguf"
    target.write_bytes(b"GGUF")
    assert llama_cpp.command(str(target), None)[-1] == str(target)
    assert llama_cpp.command(str(target), str(tmp_path)) is None


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    target = tiny_model(tmp_path_factory.mktemp("target"))
    draft = tiny_model(tmp_path_factory.mktemp("draft"), seed=1)
    flags = ["--dtype=float32", "--kv-budget-mib=16"]
    return OneProcess([f"--model={target}", *flags], [f"--model={draft}", *flags])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_in_one_process_drafts_change_no_id(engine, temperature):
    question = {"prompts": [[5, 6, 7, 8]], "num_tokens": 24, "temperature": temperature, "seed": 3}
    plain = engine.answer({**question, "mode": "plain"})
    drafted = engine.answer({**question, "mode": "chain", "k": 4})
    assert plain["ids"] == drafted["ids"]
    assert 0 < len(plain["ids"][0]) <= 24
    assert plain["rounds"] == len(plain["ids"][0]) - 1
    assert plain["choose_s"] > 0
    assert 0 < plain["first_s"] <= plain["total_s"]


def test_in_one_process_a_draft_that_is_the_target_saves_rounds(tmp_path):
    model = tiny_model(tmp_path / "model")
    arguments = [f"--model={model}", "--dtype=float32", "--kv-budget-mib=16"]
    engine = OneProcess(arguments, arguments)
    question = {"prompts": [[5, 6, 7, 8]], "num_tokens": 21, "temperature": 1.0, "seed": 3}
    plain = engine.answer({**question, "mode": "plain"})
    drafted = engine.answer({**question, "mode": "chain", "k": 4})
    assert plain["ids"] == drafted["ids"]
    assert drafted["rounds"] < plain["rounds"] / 3
