"""What kind of text a prompt asks for: drafts fare differently on each."""

from __future__ import annotations

import re

LOOKED_AT = 4000
"""Characters at the beginning and at the end that are looked at."""
ENOUGH_LINES = 2
"""So many lines that read like code, or pairs of a JSON object, are no accident."""

_LANGUAGES = (
    r"(?:[Pp]ython|JavaScript|TypeScript|Java|Kotlin|Haskell|Golang|Swift|Scala|Perl|PHP|SQL|Bash|bash|HTML|CSS"
    r"|C\+\+|C#|Dockerfile|Makefile|[Pp]ytest)"
)
_THINGS = (
    r"(?:function|method|class|script|program|code|handler|query|regex|regular expression|unit tests?"
    r"|algorithm|decorator|snippet|module|macro)"
)
# Blanks within a line. It is possessive, as is what else repeats at the start of a line below; so a match
# fails at once: a prompt of blank lines or brackets takes no longer than another.
_GAP = r"[^\S\n]*+"
_FENCE = re.compile(rf"^{_GAP}```(?!{_GAP}json\b)\S*+{_GAP}$", re.MULTILINE | re.IGNORECASE)
# A thing in a language, or something to be done to a thing: "write a poem on the function of" is neither.
_ASKS_FOR_CODE = re.compile(
    rf"\b{_LANGUAGES}(?!\w)[^.\n]{{0,40}}\b{_THINGS}\b"
    r"|\b(?i:write|implement|complete|fix|debug|refactor|rewrite|optimi[sz]e|correct|translate)\s"
    rf"(?:(?!(?:on|about|of|for)\b)[\w-]+\s){{0,5}}(?:{_THINGS}\b|{_LANGUAGES}(?!\w))"
    r"|\b(?:Write|Implement)\s(?:me\s)?(?:an?|some|the)\s(?:C|Go|Rust|R|Ruby)\s"
    rf"|\bin\s(?:Go|Rust|C|R|Ruby|{_LANGUAGES})(?![\w ])"
)
_CODE_LINE = re.compile(
    rf"^{_GAP}(?:(?:async\s+)?def\s+\w+{_GAP}\(|class\s+\w+{_GAP}[:({{]"
    r"|(?:pub(?:lic)?|private|static|fn|func|function)\s+\w+|(?:const|let|var)\s+\w+\s*[:=]"
    r"|import\s+[\w.{*\"']+|from\s+[\w.]+\s+import\b|#include\b|package\s+[\w.]+;?$"
    rf"|(?:if|for|while|elif|switch|catch)\b.*[:{{]{_GAP}$|(?:else|try|finally){_GAP}[:{{]|return\b.*[;()\[\]]"
    rf"|[\w.\[\]]++{_GAP}[-+*/]?={_GAP}\S|(?i:SELECT)\b.*\b(?i:FROM)\b|@\w[\w.]*+(?:\(.*)?$|//"
    rf"|[}})\]]++[;,)]*+$|.*[;{{]{_GAP}$)",
    re.MULTILINE,
)
# Not the lower case of code, such as `import json`.
_ASKS_FOR_JSON = re.compile(
    r"\b(?:Geo)?JSON\b|\b(?:as|in|into|to) json\b|\b(?:package|tsconfig|composer)\.json\b"
)
_PAIR = re.compile(r"\"[^\"\n]{1,80}\"\s*:\s*[\"\[{\d\-tfn]")


def workload_of(text: str) -> str:
    """json, code or prose by the look of a prompt; empty for an empty one.

    A guess, made in a moment: it decides under which name experience with drafts is kept, and nothing else.
    What is asked for counts more than what is shown: a function that reads JSON is code, and a text that is
    to become JSON is json.
    """
    looked_at = text if len(text) <= 2 * LOOKED_AT else f"{text[:LOOKED_AT]}\n{text[-LOOKED_AT:]}"
    if not looked_at.strip():
        return ""
    if _ASKS_FOR_CODE.search(looked_at):
        return "code"
    if _ASKS_FOR_JSON.search(looked_at):
        return "json"
    if _FENCE.search(looked_at):
        return "code"
    if len(_PAIR.findall(looked_at)) >= ENOUGH_LINES:
        return "json"
    return "code" if len(_CODE_LINE.findall(looked_at)) >= ENOUGH_LINES else "prose"
