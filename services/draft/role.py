"""What the draft brings to the engine: mirrors of sessions, and rounds to propose for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from outrider.rpc.errors import InvalidArgument
from outrider.sampling import DraftTree, TokenSampler
from outrider.telemetry import Attr, SpanName
from outrider.wire.draft import OpenDraft, Proposal, Propose
from outrider.worker.role import Job, served_info
from services.draft.mirror import Mirror
from services.draft.proposing import ProposeJob

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.wire.worker import ModelInfo
    from outrider.worker.session import Round, Session

NOTHING = Proposal(DraftTree.empty())


class Drafting:
    """The role of the draft."""

    opening = OpenDraft
    span_name = SpanName.PROPOSE
    credit = 4
    # A late proposal is of no use to anyone; the next round is.
    overtaken: Proposal | None = NOTHING

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.info: ModelInfo = served_info(runtime)

    def open(self, opening: OpenDraft) -> Mirror:
        """Mirror a session. One that is too long for this model is no error: it gets empty proposals."""
        if not 1 <= opening.prompt_length <= len(opening.tokens):
            raise InvalidArgument(
                f"prompt_length is {opening.prompt_length}; it must be from 1 to the number of tokens, "
                f"{len(opening.tokens)}",
                field="open.prompt_length",
            )
        opening.sampling.validate()
        return self._mirror(opening, opening.tokens)

    def adopt(self, session: Session) -> Mirror:
        """Go on with a session that another model has drafted for."""
        mirror: Mirror = session.state
        return self._mirror(mirror.opening, session.tokens)

    def arrive(self, session: Session, round_: Round) -> bool:
        """Append the committed ids, unless this is a round that was sent again and they are here already."""
        propose: Propose = round_.ask
        mirror: Mirror = session.state
        committed, base_length = propose.committed, round_.header.base_length
        _check_ids(committed, "propose.committed")
        if session.length + len(committed) != base_length:
            was_here = base_length == session.length == session.previous_length + len(committed)
            return was_here and tuple(session.tokens[session.previous_length :]) == committed
        session.commit(committed)
        for token in committed:
            mirror.sampler.append(token)
        mirror.readable = mirror.readable and self._readable(committed)
        return True

    def start(self, session: Session, round_: Round) -> Job | Proposal:
        """Draft as deep and as wide as the round and this model's limits allow."""
        propose: Propose = round_.ask
        mirror: Mirror = session.state
        guesses = (*propose.assumed, *propose.prefix)
        length = session.length + len(guesses)
        width = max(1, min(propose.w, self.info.max_nodes))
        depth = min(
            # A prefix counts in k.
            min(propose.k, self.info.max_depth) - len(propose.prefix),
            self.info.max_nodes // width,
            # The last token of each candidate is proposed, not read.
            self.info.context_length - length + 1,
        )
        ended = bool(guesses) and guesses[-1] in mirror.sampler.end_ids
        if depth < 1 or ended or not mirror.readable or not self._readable(guesses):
            return NOTHING
        return ProposeJob(
            self._runtime, session, guesses, depth=depth, width=width, min_confidence=propose.min_confidence
        )

    def describe(self, round_: Round, answer: Proposal) -> dict[str, int]:
        """What was asked for and what came of it."""
        propose: Propose = round_.ask
        return {Attr.K: propose.k, Attr.W: propose.w, Attr.DRAFTED: answer.tree.num_nodes}

    def _mirror(self, opening: OpenDraft, tokens: Sequence[int]) -> Mirror:
        _check_ids(tokens, "open.tokens")
        sampler = TokenSampler(
            opening.sampling,
            seed=opening.seed,
            choice=opening.choice,
            tokens=tokens,
            prompt_length=opening.prompt_length,
            end_ids=frozenset(opening.end_ids),
            vocab_size=self.info.vocab_size,
        )
        return Mirror(opening, sampler, readable=self._readable(tokens))

    def _readable(self, ids: Iterable[int]) -> bool:
        return all(0 <= token < self.info.vocab_size for token in ids)


def _check_ids(ids: Sequence[int], where: str) -> None:
    if min(ids, default=0) < 0:
        raise InvalidArgument(f"{where} holds a negative id: {min(ids)}", field=where)
