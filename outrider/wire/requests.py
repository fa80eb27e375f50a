"""Requests that say nothing but their name."""

from __future__ import annotations

from outrider.v1 import worker_pb2 as pb


def tokenizer_request() -> pb.GetTokenizerRequest:
    return pb.GetTokenizerRequest()
