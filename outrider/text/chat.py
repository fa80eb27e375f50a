"""Chat messages through a model's own template, rendered in a sandbox: the template came with the weights."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
from jinja2 import ext, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2.parser import Parser


class InvalidChat(ValueError):
    """Messages that the template refuses, or a template that cannot be used; the message says which."""


class ChatTemplate:
    """One model's chat template, in the dialect that templates on the Hugging Face hub are written in."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """`special_tokens` by role (`bos_token`, ...), as the template names them.

        Raises InvalidChat when the template is no valid Jinja.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[ext.loopcontrols, _Generation],
            # What is rendered is a prompt, not a page.
            autoescape=False,
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
        self._special_tokens = dict(special_tokens)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise InvalidChat(f"the model's chat template is broken ({error})") from error

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """Render (role, content) pairs up to the point where the assistant begins to speak.

        Raises InvalidChat with the template's own words when it refuses them.
        """
        try:
            return self._template.render(
                self._special_tokens,
                messages=[{"role": role, "content": content} for role, content in messages],
                add_generation_prompt=True,
                tools=None,
                documents=None,
            )
        except _Refused as error:
            raise InvalidChat(f"the model's chat template refuses the messages: {error}") from error
        except Exception as error:  # a template is a program: it can fail in any way
            raise InvalidChat(
                f"the model's chat template fails on these messages ({type(error).__name__}: {error})"
            ) from error


class _Refused(jinja2.TemplateError):
    """What `raise_exception` in a template raises."""


class _Generation(ext.Extension):
    """`{% generation %}` marks the assistant's words for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012  # jinja2's own declaration

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise _Refused(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    """Jinja's own filter escapes for HTML, which a model has never seen."""
    return json.dumps(value, indent=indent, ensure_ascii=False, **options)
