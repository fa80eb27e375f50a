"""The guess of a workload: never an error, always the same, right on what is plain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import workloads
from gateway.workload import LOOKED_AT, workload_of
from outrider.client import Chat, ChatMessage, PromptIds
from tests.support.scripted import Script

PIECES = st.sampled_from(
    ['{"a": 1', "```", "\n", "def f(", "as JSON", " ", "import", "write", "in Go", ";\n", "\ud800"]
)


@given(st.one_of(st.text(), st.lists(PIECES | st.text(max_size=5)).map("".join)))
def test_it_is_one_of_the_labels_and_the_same_again(text):
    assert workload_of(text) in (("json", "code", "prose") if text.strip() else ("",))
    assert workload_of(text) == workload_of(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \n", ""),
        ("Write a Python function that parses JSON.", "code"),
        ("def fibonacci(n):\n    if n < 2:\n        return n\n", "code"),
        ("import json\n\ndata = json.loads(text)\n", "code"),
        ("What is wrong here?\n```\nx = 1\n```", "code"),
        ("Sort this in Rust", "code"),
        ("call(a);\r\ncall(b);\r\n", "code"),
        ("\n\n\n  call(a);  \n\n\n  });\n", "code"),
        (".\n" * 9000, "prose"),
        ("How do I reverse a list in Python?", "code"),
        ("SELECT name FROM users;\nSELECT 1 FROM orders;", "code"),
        ("Describe a hotel booking as JSON.", "json"),
        ('{"name": "Ada", "born": 1815}', "json"),
        ("List the unknowns of each equation as JSON.\n```\nx + y = 3\n```", "json"),
        ("Write a package.json for a library.", "json"),
        ("Why is the sky blue?", "prose"),
        ("Go to the shop, and return with milk from the class of 1990: import duties are const.", "prose"),
        ("Write a poem on the function of memory.", "prose"),
        ("Dear Sir:\n\nthank you for your letter; I was glad of it.", "prose"),
    ],
)
def test_examples(text, expected):
    assert workload_of(text) == expected


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_the_prompts_of_the_bench_are_what_they_are_filed_as(name):
    guesses = [workload_of(prompt.text) for prompt in workloads.workload(name)]
    assert guesses == [name] * len(guesses)


def test_the_middle_of_a_long_text_is_not_read():
    prose = "Once upon a time. " * LOOKED_AT
    assert workload_of(prose + "```\n" + prose) == "prose"
    assert workload_of("```\n" + prose) == workload_of(prose + "\n```\nx = 1\n```") == "code"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Describe a hotel as JSON.", "json"),
        (Chat((ChatMessage("system", "Answer as JSON."), ChatMessage("user", "A hotel?"))), "json"),
        (PromptIds((1, 2, 3)), ""),
    ],
)
async def test_the_scheduler_is_told_the_guess(backend, client, ids, prompt, expected):
    script = backend.play(Script([ids("one")]))
    await client.complete(prompt)
    assert script.request.workload == expected


async def test_a_label_of_the_callers_own_is_not_guessed_over(backend, client, ids):
    script = backend.play(Script([ids("one")]))
    await client.complete("Describe it as JSON.", workload="poetry", store=False)
    assert (script.request.workload, script.request.store) == ("poetry", False)
