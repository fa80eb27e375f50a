"""The list of (id, token) of a tokenizer: what decides whether two models can share ids."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple


class InvalidTokenizer(ValueError):
    """A tokenizer.json that cannot be read; the message says what is wrong with it."""


class Difference(NamedTuple):
    """The first id that two vocabularies do not share; None where an id has no token."""

    id: int
    left: str | None
    right: str | None


def vocabulary(tokenizer_json: bytes) -> dict[int, str]:
    """Read id -> token out of the file tokenizer.json of the `tokenizers` library, added tokens included.

    Raises InvalidTokenizer when it is no such file.
    """
    try:
        document = json.loads(tokenizer_json)
        model = _tokens_of_model(document["model"]["vocab"])
        added = {int(entry["id"]): str(entry["content"]) for entry in document.get("added_tokens") or ()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InvalidTokenizer(f"tokenizer.json cannot be read: {type(error).__name__}: {error}") from error
    return model | added


def fingerprint(vocabulary: dict[int, str]) -> str:
    """Hash the (id, token) pairs; equal exactly where the vocabularies are. 32 hex digits."""
    pairs = json.dumps(sorted(vocabulary.items()), ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(pairs.encode(), digest_size=16).hexdigest()


def first_difference(left: dict[int, str], right: dict[int, str]) -> Difference | None:
    """Find the first id, within the range that both cover, at which two vocabularies differ.

    The range ends at the smaller of the two greatest ids: padding or extra tokens behind it can never be
    drafted and accepted, so a pair like 151,936 against 152,064 ids fits when the shared ids agree.
    None: they agree.
    """
    for token_id in range(min(max(left, default=-1), max(right, default=-1)) + 1):
        ours, theirs = left.get(token_id), right.get(token_id)
        if ours != theirs:
            return Difference(token_id, ours, theirs)
    return None


def _tokens_of_model(vocab: Any) -> dict[int, str]:
    """BPE, WordPiece and WordLevel map token -> id; Unigram lists [token, score] in order of ids."""
    if isinstance(vocab, dict):
        return {int(token_id): str(token) for token, token_id in vocab.items()}
    return {token_id: str(entry[0]) for token_id, entry in enumerate(vocab)}
