"""Fixtures of a running gateway."""

from tests.support.gateway import backend, end_id, files, ids, info, tokenizer

__all__ = ["backend", "end_id", "files", "ids", "info", "tokenizer"]
