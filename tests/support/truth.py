"""What a target answers by definition: one row, one choice, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from outrider.runtime.loading import load_runtime
from outrider.runtime.sequence import Segment
from tests.support.divergence import Asked, Divergence, divergence
from tests.support.worker_streams import Answer, expected

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.wire.worker import ModelInfo


@dataclass
class Truth:
    """Plain decoding by a runtime of the test's own. Answers are kept: they are asked for again and again."""

    runtime: Runtime
    _answers: dict[Asked, Answer] = field(default_factory=dict)
    _held: list[int] = field(default_factory=list)

    @classmethod
    def load(cls, folder: Path, dtype: str = "bfloat16") -> Truth:
        runtime = load_runtime(str(folder), dtype=dtype, num_threads=1, kv_budget_bytes=4 << 20)
        return cls(runtime)

    def __post_init__(self) -> None:
        self._sequence = self.runtime.new_sequence()

    @property
    def info(self) -> ModelInfo:
        return self.runtime.info

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """The row behind `tokens`; what the last call has read of them is not read again."""
        held, sequence = self._held, self._sequence
        common = 0
        while common < min(len(held), len(tokens) - 1) and held[common] == tokens[common]:
            common += 1
        self.runtime.truncate(sequence, common)
        new = tuple(tokens[common:])
        self.runtime.reserve(sequence, len(new))
        self._held = list(tokens)
        row: np.ndarray = self.runtime.step([Segment(sequence, new, wanted=(len(new) - 1,))])[0][0]
        return row

    def answer(self, asked: Asked) -> Answer:
        """Ids and logprobs."""
        if asked not in self._answers:
            self._answers[asked] = expected(
                self.logits,
                asked.prompt,
                asked.sampling,
                vocab_size=self.info.vocab_size,
                eos_ids=self.info.eos_ids,
                context_length=self.info.context_length,
                seed=asked.seed,
                choice=asked.choice,
            )
        return self._answers[asked]

    def divergence(self, left: Sequence[int], right: Sequence[int], asked: Asked) -> Divergence | None:
        """How two answers differ by this target's scores."""
        return divergence(left, right, asked, self.logits, vocab_size=self.info.vocab_size)
