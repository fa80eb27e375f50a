"""Prompt files: what is read, and what is said of lines that can not be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.prompts import FilePrompt, InputError, read_prompts


def written(folder, content, name="prompts.jsonl"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_both_forms_are_read_and_each_text_once(tmp_path):
    lines = [
        '{"prompt": "one", "task_id": "ignored"}',
        "",
        '{"question_id": 81, "category": "writing", "turns": ["two", "three"]}',
        '{"prompt": "one"}',
        '{"turns": ["小さな\\u2028 line"]}',
    ]
    assert read_prompts(written(tmp_path, "\r\n".join(lines))) == [
        FilePrompt(1, ("one",)),
        FilePrompt(3, ("two", "three")),
        FilePrompt(5, ("小さな\u2028 line",)),
    ]


def test_a_text_file_has_one_prompt_a_line(tmp_path):
    path = written(tmp_path, '\ufeff{"prompt": 1}\r\n\n  def f():\n', "prompts.txt")
    assert read_prompts(path) == [FilePrompt(1, ('{"prompt": 1}',)), FilePrompt(3, ("  def f():",))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Why?", 'this is no JSON .* such as {"prompt": "..."} or .*name the file .txt'),
        ("[1]", "this is a JSON list; write an object"),
        ("3", "this is a JSON number"),
        ("[" * 100_000, "nested too deeply|this is no JSON"),
        ("{}", "neither prompt nor turns, but no keys; write"),
        ('{"text": "one", "id": 1}', "neither prompt nor turns, but text, id; write"),
        ('{"prompt": "one", "turns": ["one"]}', "both prompt and turns; keep one"),
        ('{"prompt": null}', "prompt is a null; give a text"),
        ('{"prompt": ["one"]}', "prompt is a list; give a text"),
        ('{"prompt": " "}', "prompt is empty; give some text"),
        ('{"turns": "one"}', "turns is a text; give a list of texts"),
        ('{"turns": []}', "turns is empty; give at least one text"),
        ('{"turns": ["one", 2]}', r"turns\[1\] is a number; give a text"),
        ('{"turns": ["one", ""]}', r"turns\[1\] is empty"),
    ],
)
def test_a_bad_line_is_named_with_what_to_write(tmp_path, line, message):
    path = written(tmp_path, f'{{"prompt": "one"}}\n\n{line}\n')
    with pytest.raises(InputError, match=f"^{path}, line 3: .*(?:{message})"):
        read_prompts(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "\n \n", 'has no prompts; write one object a line, such as {"prompt"'),
        ("a.txt", "", "has no prompts; write one prompt a line"),
        ("a.jsonl", b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_a_file_without_prompts_says_what_to_write(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        read_prompts(written(tmp_path, content, name))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.jsonl can not be read: no such file"):
        read_prompts(tmp_path / "nowhere.jsonl")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["prompt", "turns", "x"]), inner)
    ),
    max_leaves=6,
)


@given(entry=JSON)
def test_any_json_is_a_prompt_or_an_error_of_one_line(tmp_path_factory, entry):
    path = written(tmp_path_factory.getbasetemp(), json.dumps(entry), "any.jsonl")
    message, prompts = "", []
    try:
        prompts = read_prompts(path)
    except InputError as error:
        message = str(error)
    assert len(prompts) == (not message)
    assert all(turn.strip() for prompt in prompts for turn in prompt.turns)
    assert not message or "any.jsonl, line 1: " in message
