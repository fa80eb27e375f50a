"""The configurations that are compared, one line each; others can be written out on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.sampling.parameters import SamplingParameters
from outrider.wire.generation import DraftSource, Speculation


class ConfigurationError(Exception):
    """A configuration or layout cannot be understood; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One deployment: what `outrider up` is told beside the models."""

    name: str
    draft: bool = True
    """Start the models' draft process, too."""
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A way of asking one deployment."""

    name: str
    layout: str
    speculation: Speculation
    store: bool = False
    """Draft from what earlier turns left in the store: without it each turn stands for itself."""


PLAIN_LAYOUT = "plain"
LAYOUTS = {
    layout.name: layout
    for layout in (
        # Plain decoding in its best layout: all cores, no draft process, and threads that wait as they
        # would by themselves, since nobody else needs the cores.
        Layout(PLAIN_LAYOUT, draft=False, environment={"GOMP_SPINCOUNT": "300000"}),
        # What a user gets.
        Layout("drafted"),
    )
}

PLAIN = "plain"
_SURE = Speculation(k=12, source=DraftSource.MODEL, min_confidence=0.5)
DEFAULT = "default"
CONFIGURATIONS = {
    configuration.name: configuration
    for configuration in (
        Configuration(PLAIN, PLAIN_LAYOUT, Speculation(k=0, source=DraftSource.NONE)),
        Configuration(DEFAULT, "drafted", Speculation()),
        Configuration("model-4", "drafted", Speculation(k=4, source=DraftSource.MODEL)),
        Configuration("model-8", "drafted", Speculation(k=8, source=DraftSource.MODEL)),
        Configuration("model-12-sure", "drafted", _SURE),
        Configuration("ngram", PLAIN_LAYOUT, Speculation(k=8, source=DraftSource.NGRAM)),
    )
}

GREEDY = SamplingParameters(temperature=0.0)
SAMPLED = SamplingParameters(temperature=0.7, top_p=0.92)
"""The articles' setting for prose."""
SEED = 20


def configuration(text: str, layouts: Mapping[str, Layout]) -> Configuration:
    """A configuration by name, or written out as `LAYOUT:key=value:...`.

    Example: `drafted:k=6:source=model:min_confidence=0.4`. Keys are k, w, source, min_confidence
    and store (0 or 1).

    Raises ConfigurationError.
    """
    if text in CONFIGURATIONS:
        return CONFIGURATIONS[text]
    layout, *pairs = text.split(":")
    if layout not in layouts:
        known = ", ".join((*CONFIGURATIONS, *(f"{name}:k=N" for name in layouts)))
        raise ConfigurationError(f"configuration {text!r} is not known; take some of {known}")
    values = dict(_pair(pair, text) for pair in pairs)
    return Configuration(text, layout, _speculation(values, text), store=values.get("store") == "1")


def layout_of(text: str) -> Layout:
    """A layout written as `NAME=[VARIABLE=VALUE ...] [FLAGS of outrider up] [--no-draft]`.

    Example: `int4=GOMP_SPINCOUNT=500 --draft-dtype int4`.

    Raises ConfigurationError.
    """
    name, equals, rest = text.partition("=")
    if not equals or not name.isidentifier():
        raise ConfigurationError(f"--layout is {text!r}; write NAME=FLAGS, such as int4='--draft-dtype int4'")
    words = shlex.split(rest)
    environment: dict[str, str] = {}
    while words and "=" in words[0] and not words[0].startswith("-"):
        variable, _, value = words.pop(0).partition("=")
        environment[variable] = value
    flags = tuple(word for word in words if word != "--no-draft")
    return Layout(name, draft="--no-draft" not in words, flags=flags, environment=environment)


def _pair(pair: str, text: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or key not in ("k", "w", "source", "min_confidence", "store"):
        raise ConfigurationError(
            f"configuration {text!r}: {pair!r} is none of k=N, w=N, source=NAME, min_confidence=P, store=1"
        )
    return key, value


def _speculation(values: Mapping[str, str], text: str) -> Speculation:
    try:
        return Speculation(
            k=int(values["k"]) if "k" in values else None,
            w=int(values["w"]) if "w" in values else None,
            source=DraftSource[values["source"].upper()] if "source" in values else None,
            min_confidence=float(values["min_confidence"]) if "min_confidence" in values else None,
        )
    except (ValueError, KeyError) as error:
        raise ConfigurationError(f"configuration {text!r} has a value that is none: {error}") from error
