"""One turn: one subject answers one prompt, and what was seen of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bench.configurations import SEED, Configuration
from bench.peers.peer import Peer
from bench.workloads import Prompt
from outrider.client import Chat, ChatMessage, Counters, Delta, Final, OutriderClient, SamplingParameters


class IdsDiffer(Exception):
    """Two configurations gave different answers to one question."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer. Seconds count from the sending of the request."""

    prompt: Prompt
    ids: tuple[int, ...]
    first_s: float
    total_s: float
    num_first: int = 1
    """Tokens that came with the first."""
    counters: Counters | None = None
    """Of Outrider's own turns."""
    prompt_tokens: int | None = None
    trace_id: str = ""
    """Of a traced turn."""

    @property
    def rate(self) -> float:
        """Tokens per second, the time to the first one included."""
        return len(self.ids) / self.total_s

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token behind the first ones; None when there are no others."""
        num_later = len(self.ids) - self.num_first
        return (self.total_s - self.first_s) / num_later if num_later > 0 else None


class Subject(Protocol):
    """Whoever takes turns."""

    name: str

    async def turn(self, prompt: Prompt, num_tokens: int) -> Turn:
        """Answer one prompt with at most `num_tokens` tokens."""
        ...

    @property
    def pids(self) -> list[int]:
        """The processes that do the work."""
        ...


class Ours:
    """A configuration, asked through its deployment's gateway."""

    def __init__(
        self,
        configuration: Configuration,
        client: OutriderClient,
        pids: list[int],
        sampling: SamplingParameters,
    ) -> None:
        self.name = configuration.name
        self.configuration = configuration
        self.pids = pids
        self._client = client
        self._sampling = sampling

    async def turn(self, prompt: Prompt, num_tokens: int) -> Turn:
        return await answer(self._client, prompt, self.configuration, _with_limit(self._sampling, num_tokens))


class Theirs:
    """A mode of a peer; it gets the ids that the gateway makes of the same chat."""

    def __init__(
        self,
        name: str,
        peer: Peer,
        mode: str,
        encode: Callable[[str], tuple[int, ...]],
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self._peer = peer
        self._encode = encode
        self._question = {"mode": mode, "fixed": False, **(extra or {})}

    @property
    def pids(self) -> list[int]:
        return [self._peer.pid]

    async def turn(self, prompt: Prompt, num_tokens: int) -> Turn:
        ids = self._encode(prompt.text)
        answer = await self._peer.ask({**self._question, "prompts": [list(ids)], "num_tokens": num_tokens})
        return Turn(
            prompt, tuple(answer["ids"][0]), answer["first_s"], answer["total_s"], prompt_tokens=len(ids)
        )


async def answer(
    client: OutriderClient,
    prompt: Prompt,
    configuration: Configuration,
    sampling: SamplingParameters,
    *,
    cache_salt: str = "",
) -> Turn:
    """Ask a gateway, and note when tokens came."""
    ids: list[int] = []
    first_s, last_s, num_first = 0.0, 0.0, 0
    start = time.perf_counter()
    stream = client.generate(
        Chat((ChatMessage("user", prompt.text),)),
        sampling=sampling,
        seed=SEED,
        speculation=configuration.speculation,
        store=configuration.store,
        cache_salt=cache_salt,
    )
    async with aclosing(stream) as events:
        async for event in events:
            match event:
                case Delta(token_ids=new) if new:
                    last_s = time.perf_counter() - start
                    if not ids:
                        first_s, num_first = last_s, len(new)
                    ids += new
                case Final():
                    return Turn(
                        prompt=prompt,
                        ids=tuple(ids),
                        first_s=first_s,
                        total_s=last_s,
                        num_first=num_first,
                        counters=event.counters,
                        prompt_tokens=event.prompt_tokens,
                        trace_id=event.trace_id,
                    )
                case Delta():
                    pass  # text alone
    raise RuntimeError("the gateway ended the answer without its last event")


def check_equal(expected: Turn, by: str, other: Turn, also: str) -> None:
    """Raise IdsDiffer, saying where two answers to one prompt part."""
    if expected.ids == other.ids:
        return
    pairs = zip(expected.ids, other.ids, strict=False)
    shared = next((place for place, (one, two) in enumerate(pairs) if one != two), None)
    place = min(len(expected.ids), len(other.ids)) if shared is None else shared
    raise IdsDiffer(
        f"prompt {expected.prompt.name}, position {place}: {by} gives {_at(expected, place)}, "
        f"{also} gives {_at(other, place)}"
    )


def agreement(expected: Turn, other: Turn) -> int:
    """How many leading ids two answers share."""
    pairs = zip(expected.ids, other.ids, strict=False)
    return next(
        (place for place, (one, two) in enumerate(pairs) if one != two),
        min(len(expected.ids), len(other.ids)),
    )


def _at(turn: Turn, place: int) -> str:
    return f"id {turn.ids[place]}" if place < len(turn.ids) else "no id (it has ended)"


def _with_limit(sampling: SamplingParameters, num_tokens: int) -> SamplingParameters:
    return replace(sampling, max_tokens=num_tokens)
