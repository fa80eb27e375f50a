"""What is asked for: the prompts of each workload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROMPTS = Path(__file__).parent / "prompts"
WORKLOADS = ("json", "code", "prose")
SEPARATOR = "\n---\n"
COMPLETE_FUNCTION = "Complete this Python function and show the whole function.\n\n"


class PromptError(Exception):
    """A prompt file cannot be used; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question, as the user's turn of a chat."""

    name: str
    workload: str
    text: str


def workload(name: str) -> list[Prompt]:
    """The project's own prompts of one workload.

    Raises PromptError for a name that is not one of `WORKLOADS`.
    """
    if name not in WORKLOADS:
        raise PromptError(f"workload {name!r} is not known; take some of {', '.join(WORKLOADS)}")
    parts = (PROMPTS / f"{name}.txt").read_text(encoding="utf-8").strip("\n").split(SEPARATOR)
    return [Prompt(f"{name}-{number}", name, part.strip()) for number, part in enumerate(parts, start=1)]


def from_file(path: Path) -> list[Prompt]:
    """Prompts of a JSONL file, one object a line.

    Two forms are read: `question_id, category, turns` (Spec-Bench and MT-Bench; the first turn is asked), and
    `task_id, prompt` (HumanEval; a function to complete). The category is the workload, or the file's name.

    Raises PromptError, naming the line.
    """
    prompts: list[Prompt] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            prompts.append(_prompt(line, f"{path}, line {number}", path.stem))
    if not prompts:
        raise PromptError(f"{path} has no prompts")
    return prompts


def chosen(prompts: Sequence[Prompt], workloads: Sequence[str], limit: int | None) -> list[Prompt]:
    """At most `limit` prompts of each workload; with no `workloads`, all that occur.

    The workloads take turns: a run that is cut short has some of each.
    """
    names = list(workloads) or list(dict.fromkeys(prompt.workload for prompt in prompts))
    columns = [[prompt for prompt in prompts if prompt.workload == name][:limit] for name in names]
    longest = max((len(column) for column in columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _prompt(line: str, where: str, stem: str) -> Prompt:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise PromptError(f"{where}: this is no JSON ({error})") from error
    if not isinstance(entry, dict):
        raise PromptError(f"{where}: a prompt is a JSON object")
    turns, text = entry.get("turns"), entry.get("prompt")
    if isinstance(turns, list) and turns and isinstance(turns[0], str):
        return Prompt(str(entry.get("question_id", where)), str(entry.get("category", stem)), turns[0])
    if isinstance(text, str):
        if "task_id" not in entry:
            raise PromptError(f"{where}: there is a prompt, but no task_id beside it")
        question = f"{COMPLETE_FUNCTION}```python\n{text.rstrip()}\n```"
        return Prompt(str(entry["task_id"]), str(entry.get("category", stem)), question)
    raise PromptError(f"{where}: wanted question_id, category and turns, or task_id and prompt")
