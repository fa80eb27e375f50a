"""Prompts as people hand them over: from the command line, or many in a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.reporting import EXIT_USAGE, fail
from outrider.client import Chat, ChatMessage, OutriderError, Prompt

FORMS = '{"prompt": "..."} or {"turns": ["..."]}'


class InputError(Exception):
    """What was handed over can not be used; one sentence says where, and what to write."""


@dataclass(frozen=True, slots=True)
class FilePrompt:
    """What is asked in one line of a file, turn after turn."""

    line: int
    turns: tuple[str, ...]


def prompt_of(text: str, system: str, *, raw: bool) -> Prompt:
    """One text as it is sent: a chat unless it is raw. Ends the command where the flags contradict."""
    if not raw:
        turns = [ChatMessage("system", system)] if system else []
        return Chat((*turns, ChatMessage("user", text)))
    if system:
        fail("a raw prompt has no system message; drop --raw or --system", EXIT_USAGE)
    return text


def explained(error: OutriderError) -> str:
    """What is wrong with a request, in the words of the flags."""
    return f"{error} (that is --raw)" if error.field == "chat" else str(error)


def read_prompts(path: Path) -> list[FilePrompt]:
    """All prompts of a file, in order, each text once; empty lines do not count.

    A name that ends in .txt has one prompt a line; every other is JSONL, one object a line with `prompt`, a
    text, or `turns`, the user's turns of a conversation (as in MT-Bench and Spec-Bench). Other keys are not
    looked at.

    Raises:
        InputError: naming the first line that is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise InputError(f"{path} can not be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error}); convert it first") from error
    is_text = path.suffix == ".txt"
    found: dict[tuple[str, ...], FilePrompt] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            turns = (line.rstrip("\r"),) if is_text else _turns(line, f"{path}, line {number}")
            found.setdefault(turns, FilePrompt(number, turns))
    if not found:
        form = "one prompt a line" if is_text else f"one object a line, such as {FORMS}"
        raise InputError(f"{path} has no prompts; write {form}")
    return list(found.values())


def _turns(line: str, where: str) -> tuple[str, ...]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise InputError(
            f"{where}: this is no JSON ({error}); write one object a line, such as {FORMS}, or name the file "
            ".txt for one prompt a line"
        ) from error
    except RecursionError as error:
        raise InputError(f"{where}: the JSON is nested too deeply; write {FORMS}") from error
    if not isinstance(entry, dict):
        raise InputError(f"{where}: this is a JSON {_kind(entry)}; write an object, such as {FORMS}")
    match entry:
        case {"prompt": _, "turns": _}:
            raise InputError(f"{where}: there are both prompt and turns; keep one of them")
        case {"prompt": text}:
            turns, field = [text], "prompt"
        case {"turns": [*turns]}:
            field = "turns"
        case {"turns": other}:
            raise InputError(f"{where}: turns is a {_kind(other)}; give a list of texts")
        case _:
            keys = ", ".join(map(str, entry)) or "no keys"
            raise InputError(f"{where}: there is neither prompt nor turns, but {keys}; write {FORMS}")
    if not turns:
        raise InputError(f"{where}: turns is empty; give at least one text")
    for index, text in enumerate(turns):
        name = field if field == "prompt" else f"turns[{index}]"
        if not isinstance(text, str):
            raise InputError(f"{where}: {name} is a {_kind(text)}; give a text")
        if not text.strip():
            raise InputError(f"{where}: {name} is empty; give some text, or remove the line")
    return tuple(turns)


def _kind(value: object) -> str:
    names = {dict: "object", list: "list", str: "text", bool: "truth value", type(None): "null"}
    return names.get(type(value), "number")
