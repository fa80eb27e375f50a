"""What the validator brings to the engine: sessions of the target, and rounds to verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.rpc.errors import ContextExceeded, FailedPrecondition, InvalidArgument
from outrider.sampling import TokenSampler
from outrider.telemetry import Attr, SpanName
from outrider.wire.validator import OpenTarget, Verdict, Verify
from outrider.wire.worker import Stale
from outrider.worker.role import Job, served_info
from services.validator.rounds import VerifyJob, fitted

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.worker.session import Round, Session


class Validating:
    """The role of the validator. A session's state is its `TokenSampler`, which stands at its last token."""

    opening = OpenTarget
    span_name = SpanName.CHECK
    # One is being verified; a second may be on its way, since its base may be guessed.
    credit = 2
    overtaken = None

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.info = served_info(runtime)

    def open(self, opening: OpenTarget) -> TokenSampler:
        """Check everything that can be wrong with a session, before it costs anything."""
        self._check_numerics(opening.numerics_id)
        opening.sampling.validate()
        opening.sampling.validate_ids(self.info.vocab_size)
        self._check_tokens(opening)
        eos_ids = () if opening.sampling.ignore_eos else self.info.eos_ids
        sampler = TokenSampler(
            opening.sampling,
            seed=opening.seed,
            choice=opening.choice,
            tokens=opening.tokens,
            prompt_length=opening.prompt_length,
            end_ids=frozenset((*eos_ids, *opening.sampling.stop_ids)),
            vocab_size=self.info.vocab_size,
        )
        ended = sampler.num_output > 0 and sampler.last_token in sampler.end_ids
        if ended or sampler.num_output >= opening.sampling.max_tokens:
            raise InvalidArgument("open.tokens holds an answer that is complete already", field="open.tokens")
        return sampler

    def adopt(self, session: Session) -> TokenSampler:
        """A target is never changed under its sessions."""
        raise FailedPrecondition("the session is pinned to weights that the validator no longer has")

    def arrive(self, session: Session, round_: Round) -> bool:
        """Whether the round continues the session shows when those before it are answered."""
        return True

    def start(self, session: Session, round_: Round) -> Job | Stale:
        """Verify what of the tree the vocabulary and the length limits leave."""
        if round_.header.base_length != session.length:
            return Stale()
        verify: Verify = round_.ask
        sampler: TokenSampler = session.state
        depth = min(
            self.info.max_depth,
            self.info.context_length - session.length - 1,
            sampler.parameters.max_tokens - sampler.num_output - 1,
        )
        tree, nodes = fitted(
            verify.tree, vocab_size=self.info.vocab_size, depth=depth, max_nodes=self.info.max_nodes
        )
        return VerifyJob(self._runtime, session, tree, nodes, max_length=self.info.context_length)

    def describe(self, round_: Round, answer: Verdict) -> dict[str, int]:
        """What the round came to."""
        return {
            Attr.DRAFTED: answer.drafted,
            Attr.ACCEPTED: answer.accepted,
            Attr.COMMITTED: len(answer.committed),
        }

    def _check_numerics(self, wanted: str) -> None:
        if wanted and wanted != self.info.numerics_id:
            raise FailedPrecondition(
                f"the session needs numerics id {wanted}, this validator has {self.info.numerics_id}",
                field="open.numerics_id",
            )

    def _check_tokens(self, opening: OpenTarget) -> None:
        num_tokens, context = len(opening.tokens), self.info.context_length
        if not opening.tokens:
            raise InvalidArgument("the prompt is empty; give at least one token", field="open.tokens")
        if not 1 <= opening.prompt_length <= num_tokens:
            raise InvalidArgument(
                f"prompt_length is {opening.prompt_length}; it must be from 1 to the number of tokens, "
                f"{num_tokens}",
                field="open.prompt_length",
            )
        wrong = next((token for token in opening.tokens if not 0 <= token < self.info.vocab_size), None)
        if wrong is not None:
            raise InvalidArgument(
                f"token id {wrong} is outside the vocabulary (0 to {self.info.vocab_size - 1})",
                field="open.tokens",
            )
        if num_tokens >= context:
            short = context < self._runtime.info.context_length
            holder = "the worker's KV memory (kv-budget-mib)" if short else "the context"
            raise ContextExceeded(
                f"prompt and output have {num_tokens} tokens, and {holder} holds {context}: "
                f"shorten the prompt to at most {context - 1}",
                field="open.tokens",
            )
