"""Small pictures of numbers, in text."""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"
FULL, EMPTY = "█", "░"


def bar(share: float, width: int) -> str:
    """A bar of `width` cells, of which a share is full; some of one is never shown as none.

    Example: bar(0.5, 4) is "██░░".
    """
    share = min(max(share, 0.0), 1.0)
    num_full = max(round(share * width), 1 if share > 0 else 0)
    return FULL * num_full + EMPTY * (width - num_full)


def columns(shares: Sequence[float]) -> str:
    """One column a share of 0 to 1.

    Example: columns([1.0, 0.5, 0.0]) is "█▅▁".
    """
    return "".join(LEVELS[round(min(max(share, 0.0), 1.0) * (len(LEVELS) - 1))] for share in shares)


def shortened(number: float) -> str:
    """A number that is easily read.

    Example: 1234567 is "1.23M", 950 is "950".
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= 0.9995 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}" if number % 1 else f"{number:.0f}"
