import pytest

from bench.workloads import WORKLOADS, PromptError, chosen, from_file, workload


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_workload_has_a_dozen_different_prompts(name):
    prompts = workload(name)
    assert len({prompt.text for prompt in prompts}) >= 12
    assert all(prompt.workload == name and len(prompt.text) > 20 for prompt in prompts)
    assert len({prompt.name for prompt in prompts}) == len(prompts)


def test_the_code_to_be_edited_comes_with_its_prompt():
    texts = [prompt.text for prompt in workload("code") if "```" in prompt.text]
    assert len(texts) >= 3
    assert all(text.count("```") == 2 for text in texts)


def test_an_unknown_workload_is_named_with_the_known_ones():
    with pytest.raises(PromptError, match="'poetry' is not known; take some of json, code, prose"):
        workload("poetry")


def test_spec_bench_and_human_eval_lines_are_read(tmp_path):
    path = tmp_path / "mixed.jsonl"
    path.write_text(
        '{"question_id": 81, "category": "writing", "turns": ["first", "second"]}\n'
        "\n"
        '{"task_id": "HumanEval/0", "prompt": "def f(x):\\n"}\n'
    )
    first, second = from_file(path)
    assert (first.name, first.workload, first.text) == ("81", "writing", "first")
    assert (second.name, second.workload) == ("HumanEval/0", "mixed")
    assert "```python\ndef f(x):\n```" in second.text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: this is no JSON"),
        ("[]", "line 1: a prompt is a JSON object"),
        ('{"turns": []}', "line 1: wanted question_id, category and turns, or task_id and prompt"),
        ('{"prompt": "x"}', "no task_id beside it"),
        ("", "has no prompts"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(line)
    with pytest.raises(PromptError, match=message):
        from_file(path)


def test_workloads_take_turns(prompts):
    assert [prompt.name for prompt in chosen(prompts, ["prose", "json"], 2)] == [
        "prose-1",
        "json-1",
        "prose-2",
        "json-2",
    ]
    assert [prompt.name for prompt in chosen(prompts, [], 1)] == ["json-1", "prose-1"]
