import pytest

from bench import contest
from bench.contest import hold
from bench.turns import IdsDiffer


def _say(_line):
    pass


async def _hold(subjects, prompts, exact, **options):
    settings = {"num_tokens": 4, "minutes": 5.0, "say": _say, **options}
    return await hold(subjects, prompts, exact=exact, **settings)


@pytest.fixture(autouse=True)
def _steady(monkeypatch):
    """The machine under a test run is anything but quiet."""
    monkeypatch.setattr(contest, "read_bandwidth", lambda: 10.0)
    monkeypatch.setattr(contest, "machine_busy_s", lambda: 0.0)


async def test_every_subject_answers_every_prompt_and_the_order_rotates(scripted, prompts):
    order = []

    class Noted(scripted):
        async def turn(self, prompt, num_tokens):
            order.append(self.name)
            return await super().turn(prompt, num_tokens)

    subjects = [Noted("plain", [1, 2]), Noted("fast", [1, 2])]
    found = await _hold(subjects, prompts, ["plain", "fast"])
    # The first turn of each warms up.
    assert order == ["plain", "fast", "plain", "fast", "fast", "plain", "plain", "fast", "fast", "plain"]
    assert len(found.entries) == 8
    assert found.subjects == ["plain", "fast"]
    assert found.workloads == ["json", "prose"]
    assert len(found.pairs("fast", "plain", "json")) == 2


async def test_other_ids_end_the_run_and_say_where(scripted, prompts):
    subjects = [scripted("plain", [1, 2, 3]), scripted("wrong", [1, 2, 4])]
    with pytest.raises(IdsDiffer, match="prompt json-1, position 2: plain gives id 3, wrong gives id 4"):
        await _hold(subjects, prompts, ["plain", "wrong"])


async def test_a_shorter_answer_is_another_answer(scripted, prompts):
    subjects = [scripted("plain", [1, 2, 3]), scripted("short", [1, 2])]
    with pytest.raises(IdsDiffer, match="position 2: plain gives id 3, short gives no id"):
        await _hold(subjects, prompts, ["plain", "short"])


async def test_peers_may_differ_and_how_much_is_told(scripted, prompts):
    subjects = [scripted("plain", [1, 2, 3, 4]), scripted("peer", [1, 2, 9, 9])]
    found = await _hold(subjects, prompts, ["plain"])
    assert found.agreements == {"peer": [0.5] * 4}


async def test_when_time_is_up_each_workload_still_gets_one_prompt(scripted, prompts):
    subject = scripted("plain", [1])
    found = await _hold([subject], prompts, ["plain"], minutes=0.0)
    assert [entry.turn.prompt.name for entry in found.entries] == ["json-1", "prose-1"]


async def test_turns_in_other_states_of_the_machine_are_no_pairs(scripted, prompts, monkeypatch):
    speeds = iter([10.0] * 6 + [20.0] * 6 + [10.0] * 12)
    monkeypatch.setattr(contest, "read_bandwidth", lambda: next(speeds))
    subjects = [scripted("plain", [1]), scripted("fast", [1])]
    found = await _hold(subjects, prompts[:2], ["plain", "fast"])
    assert [one.prompt.name for one, _ in found.pairs("fast", "plain")] == ["prose-1"]


async def test_turns_beside_another_program_are_no_pairs(scripted, prompts, monkeypatch):
    monkeypatch.setattr(contest, "machine_busy_s", iter(range(0, 10_000, 1000)).__next__)
    subjects = [scripted("plain", [1]), scripted("fast", [1])]
    found = await _hold(subjects, prompts[:1], ["plain", "fast"])
    assert found.pairs("fast", "plain") == []
