"""What kind of text a prompt asks for: drafts fare differently on each."""

from __future__ import annotations

import re

LOOKED_AT = 4000
"""Characters at the beginning and at the end that are looked at."""
_JSON = re.compile(r"\bJSON\b|\bYAML\b|^\s*[\[{]|\"\w+\"\s*:", re.IGNORECASE | re.MULTILINE)
_CODE = re.compile(
    r"```|\b(?:def|class|function|struct|return|import|const|SELECT|regex|unit tests?|bash|shell script|SQL"
    r"|Python|JavaScript|TypeScript|Rust|Java|Go|C\+\+|C#|Kotlin|Haskell|Dockerfile|Makefile)\b|[;{}]\s*$|=>|\(\)",
    re.MULTILINE,
)


def workload_of(text: str) -> str:
    """json, code or prose by the look of a prompt; empty for an empty one.

    A guess, made in a moment: it decides under which name experience with drafts is kept, and nothing else.
    """
    looked_at = text if len(text) <= 2 * LOOKED_AT else f"{text[:LOOKED_AT]}\n{text[-LOOKED_AT:]}"
    if not looked_at.strip():
        return ""
    if _CODE.search(looked_at) and not re.search(r"\bJSON\b", looked_at):
        return "code"
    if _JSON.search(looked_at):
        return "json"
    return "code" if _CODE.search(looked_at) else "prose"
