"""Stop strings, searched in the decoded text token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Found(NamedTuple):
    """What one step of the search lets through."""

    text: str
    """Text that can be shown."""
    stop: str | None = None
    """The stop string that begins right behind `text`; the search is over."""


class StopFinder:
    """Lets text through up to the first stop string, holding back what may be the beginning of one.

    The token whose text completes a match is the last one that counts. Where one token completes several,
    the one that begins first decides, and of those that begin together the longest.
    """

    __slots__ = ("_held", "_stops")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._held = ""

    def push(self, text: str, pending: str = "") -> Found:
        """Take one token's text.

        `pending` is text that this token shows behind `text`, but that a later token may change: a match may
        end in it, and none of it is let through.
        """
        certain = self._held + text
        found = self._first_in(certain + pending)
        if found is not None:
            start, stop = found
            return Found((certain + pending)[:start], stop)
        open_from = min(self._open_from(certain), self._open_from(certain + pending), len(certain))
        self._held = certain[open_from:]
        return Found(certain[:open_from])

    def flush(self) -> str:
        """Give what was held back: the text ends here."""
        held, self._held = self._held, ""
        return held

    def _first_in(self, text: str) -> tuple[int, str] | None:
        starts = [(start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        # min is stable and the stops are sorted: of equal starts the longest stop comes first.
        return min(starts, key=lambda each: each[0], default=None)

    def _open_from(self, text: str) -> int:
        """Index of the longest end of `text` that is the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for start in range(max(0, len(text) - longest), len(text)):
            if any(stop.startswith(text[start:]) for stop in self._stops):
                return start
        return len(text)
