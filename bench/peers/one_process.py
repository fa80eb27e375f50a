"""Outrider's own engine without its services: both runtimes and the same jobs in one process, one session.

python -m bench.peers.one_process '["--model=...", ...]' ['["--model=...", ...]']

The arguments are those of the validator and of the draft. A question is {"prompts": [[id, ...]],
"num_tokens": N, "mode": "plain" | "chain", "k": 4, "min_confidence": 0.0, "temperature": 0.0, "seed": 20}.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

from bench.peers.serving import serve
from outrider.rpc.settings import read_settings
from outrider.runtime.loading import load_runtime
from outrider.sampling import DraftTree, SamplingParameters
from outrider.wire.draft import OpenDraft, Propose
from outrider.wire.validator import OpenTarget, Verify
from outrider.wire.worker import Header
from outrider.worker.session import Round, Session, SessionKey
from services.draft.role import Drafting
from services.draft.settings import DraftSettings
from services.validator.role import Validating
from services.validator.settings import ValidatorSettings

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.worker.settings import WorkerSettings

KEY = SessionKey(b"bench", b"bench")
ROOM, PROMPT_ROOM = 512, 256


class Side:
    """One model with its role, as the worker's engine would drive it."""

    def __init__(self, settings: WorkerSettings, role: type[Any]) -> None:
        self.runtime: Runtime = load_runtime(settings.model, **settings.runtime_options)
        self.role = role(self.runtime)
        self.step_s = 0.0
        self.advance_s = 0.0

    def open(self, opening: Any) -> Session:
        """A session of this side."""
        return Session(
            key=KEY,
            connection=None,
            epoch=1,
            ticket=1,
            tokens=list(opening.tokens),
            prompt_length=opening.prompt_length,
            sequence=self.runtime.new_sequence(),
            state=self.role.open(opening),
        )

    def round(self, session: Session, number: int, ask: Any, base_length: int) -> Any:
        """One round from its question to its answer."""
        round_ = Round(session, Header(KEY.session_id, 1, number, base_length), ask, time.monotonic_ns())
        if number > 1:
            self.role.arrive(session, round_)
        job = self.role.start(session, round_)
        if not hasattr(job, "plan"):
            return job
        while True:
            segments = job.plan(ROOM, PROMPT_ROOM)
            self.runtime.reserve(session.sequence, sum(len(each.tokens) for each in segments))
            start = time.perf_counter()
            logits = self.runtime.step(segments)
            between = time.perf_counter()
            answer = job.advance(logits)
            self.step_s += between - start
            self.advance_s += time.perf_counter() - between
            if answer is not None:
                return answer


class OneProcess:
    """Answers questions with the rounds that a scheduler would ask for."""

    def __init__(self, validator: list[str], draft: list[str] | None) -> None:
        self._target = Side(read_settings(ValidatorSettings, validator), Validating)
        self._draft = Side(read_settings(DraftSettings, draft), Drafting) if draft else None

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ids, seconds, and of the target's time what went into the model and what into choosing tokens."""
        prompt = tuple(question["prompts"][0])
        sampling = SamplingParameters(
            temperature=question.get("temperature", 0.0), max_tokens=question["num_tokens"]
        )
        seed = question.get("seed", 0)
        start = time.perf_counter()
        target = self._target.open(OpenTarget(prompt, len(prompt), sampling, seed))
        # No draft waits for the prompt: the first round is plain, as it is behind the services.
        verdict = self._target.round(target, 1, Verify(DraftTree.empty()), len(prompt))
        first_s = time.perf_counter() - start
        self._target.step_s = self._target.advance_s = 0.0
        drafting = self._draft if question["mode"] == "chain" else None
        draft: Session | None = None
        number = 1
        try:
            while verdict.finish_reason is None:
                number += 1
                tree = DraftTree.empty()
                if drafting is not None:
                    num_output = target.length - len(prompt)
                    depth = max(0, min(question["k"], sampling.max_tokens - num_output - 1))
                    ask = Propose(
                        verdict.committed if draft else (),
                        depth,
                        min_confidence=question.get("min_confidence", 0.0),
                    )
                    if draft is None:
                        opening = OpenDraft(
                            tuple(target.tokens),
                            len(prompt),
                            sampling,
                            seed,
                            end_ids=self._target.role.info.eos_ids,
                        )
                        draft = drafting.open(opening)
                        tree = drafting.round(draft, 1, ask, target.length).tree if depth else tree
                    else:
                        tree = drafting.round(draft, number, ask, target.length).tree
                verdict = self._target.round(target, number, Verify(tree), target.length)
        finally:
            self._target.runtime.release(target.sequence)
            if drafting is not None and draft is not None:
                drafting.runtime.release(draft.sequence)
        return {
            "ids": [target.tokens[len(prompt) :]],
            "first_s": first_s,
            "total_s": time.perf_counter() - start,
            "rounds": number - 1,
            "step_s": self._target.step_s,
            "choose_s": self._target.advance_s,
        }


def main() -> None:
    """Load, then answer until standard input ends."""
    validator, *draft = (json.loads(argument) for argument in sys.argv[1:])
    peer = OneProcess(validator, draft[0] if draft else None)
    serve({"threads": torch.get_num_threads()}, peer.answer)


if __name__ == "__main__":
    main()
