"""Fixtures of a running gateway."""

from tests.support.gateway import backend, client, end_id, files, ids, info, tokenizer

__all__ = ["backend", "client", "end_id", "files", "ids", "info", "tokenizer"]
