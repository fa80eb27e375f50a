"""A whole answer, collected from its events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from outrider.sampling.acceptance import TokenLogprobs
from outrider.wire.inference import Delta, Final


@dataclass(frozen=True, slots=True)
class Completion:
    """Text and ids of an answer, and how it came about."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    """One per id; empty unless asked for."""
    final: Final


async def collect(events: AsyncIterator[Delta | Final]) -> Completion:
    """Join the events of one answer. Raises ValueError when the final one is missing."""
    text: list[str] = []
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    async for event in events:
        match event:
            case Delta():
                text.append(event.text)
                token_ids += event.token_ids
                logprobs += event.logprobs
            case Final():
                return Completion("".join(text), tuple(token_ids), tuple(logprobs), event)
    raise ValueError("the answer has no final event")
