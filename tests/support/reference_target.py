"""A target model in pure Python: the oracle of tests that need exact ids and no weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.sampling.acceptance import FinishReason, TokenLogprobs
from outrider.sampling.parameters import SamplingParameters
from outrider.sampling.tree import DraftTree
from outrider.wire.validator import Verdict
from outrider.wire.worker import Exactness, ModelInfo

FRESH, COPIED = 6, 6
"""Output comes in turns: so many new ids, then so many that repeat what stood COPIED + FRESH earlier."""


def model_info(**changes: object) -> ModelInfo:
    """What a scripted worker says that it has loaded."""
    values: dict[str, object] = {
        "model": "reference",
        "weight_fingerprint": "weights",
        "tokenizer_fingerprint": "tokenizer",
        "vocab_size": 997,
        "context_length": 4096,
        "numerics_id": "numerics",
        "exactness": Exactness.BITWISE,
        "dtype": "float32",
        "device": "cpu",
        "eos_ids": (0,),
        "model_version": "1",
        "instance_id": b"instance-0000001",
    }
    return ModelInfo(**{**values, **changes})  # type: ignore[arg-type]  # the caller names fields


@dataclass(frozen=True)
class Generation:
    """What the next token depends on, beside the tokens."""

    prompt_length: int
    sampling: SamplingParameters = SamplingParameters(max_tokens=64)
    seed: int = 0
    choice: int = 0


@dataclass(frozen=True)
class ReferenceTarget:
    """Chooses each token by a hash of seed, choice, position and the last tokens, or by copying."""

    info: ModelInfo = model_info()

    def end_ids(self, generation: Generation) -> frozenset[int]:
        own = () if generation.sampling.ignore_eos else self.info.eos_ids
        return frozenset((*generation.sampling.stop_ids, *own))

    def next(self, tokens: Sequence[int], generation: Generation) -> int:
        """The token at index len(tokens)."""
        index = len(tokens) - generation.prompt_length
        if index >= FRESH and index % (FRESH + COPIED) >= FRESH:
            return tokens[-FRESH]
        text = f"{generation.seed}:{generation.choice}:{len(tokens)}:{list(tokens[-3:])}"
        draw = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        # Never an end id by chance: tests that want an end name a stop id.
        return 1 + draw % (self.info.vocab_size - 1)

    def logprobs(self, tokens: Sequence[int], token: int) -> TokenLogprobs:
        """Numbers that float32 holds exactly."""
        value = -(token % 64) / 8 - len(tokens) / 1024
        return TokenLogprobs(logprob=value, top_ids=(token,), top_logprobs=(value,))

    def finish_reason(self, tokens: Sequence[int], generation: Generation) -> FinishReason | None:
        num_output = len(tokens) - generation.prompt_length
        if num_output > 0 and tokens[-1] in self.end_ids(generation):
            return FinishReason.STOP
        if num_output >= generation.sampling.max_tokens or len(tokens) >= self.info.context_length:
            return FinishReason.LENGTH
        return None

    def plain(self, tokens: Sequence[int], generation: Generation) -> list[int]:
        """The whole answer behind `tokens`, one token after the other."""
        text = list(tokens)
        while self.finish_reason(text, generation) is None:
            text.append(self.next(text, generation))
        return text[len(tokens) :]

    def judge(self, tree: DraftTree, tokens: Sequence[int], generation: Generation) -> Verdict:
        """One round over `tokens` and a tree, by the rule exact."""
        text = list(tokens)
        room = min(
            self.info.context_length - len(text) - 1,
            generation.sampling.max_tokens - (len(text) - generation.prompt_length) - 1,
        )
        committed: list[int] = []
        logprobs: list[TokenLogprobs] = []
        path: list[int] = []
        reason = self.finish_reason(text, generation)
        child: int | None = -1
        while reason is None and child is not None:
            token = self.next(text, generation)
            logprobs.append(self.logprobs(text, token))
            text.append(token)
            committed.append(token)
            reason = self.finish_reason(text, generation)
            child = tree.child(child, token) if len(path) < room else None
            if child is not None:
                path.append(child)
        raw_accepted = len(path)
        while child is not None and path:  # ended on an accepted token: matches behind it are only counted
            token = self.next(text, generation)
            text.append(token)
            child = tree.child(child, token) if raw_accepted < room else None
            raw_accepted += child is not None
        return Verdict(
            committed=tuple(committed),
            accepted=len(path),
            raw_accepted=raw_accepted,
            drafted=tree.limited(max(0, room)).within(self.info.vocab_size).num_nodes,
            path=tuple(path),
            logprobs=tuple(logprobs) if generation.sampling.logprobs is not None else (),
            finish_reason=reason,
        )
