"""The acceptance rule `exact`: which drafted tokens of a round are committed.

Words
-----
p and q        p is the target's distribution, q the draft's. (The rule below needs neither: it compares ids.)
round          one target pass of one session over its last committed token and k >= 0 drafted tokens.
draft          what is offered for a round: a token tree, a chain when it has one candidate.
k              the depth: drafted tokens per candidate. k = 0 is plain decoding.
accepted       drafted tokens that were committed.
raw accepted   drafted tokens that matched, also those behind the end of the answer.
correction     the target's own token where it refused all that was drafted there.
bonus          the target's own token after a candidate that was accepted to its end.
committed      tokens that belong to the output: the accepted ones and the correction or bonus.
acceptance length
               committed tokens / rounds, correction and bonus included: 1.00 for plain decoding, k + 1 at
               most.

The rule
--------
1. The target's token at 0-based index t of prompt + output is

       argmax over the kept ids of  logit / T + G(seed, choice, t, id),

   with G standard Gumbel noise (`outrider.sampling.noise`) and ties to the smaller id. Below a
   temperature of 1e-5 it is the argmax of the processed logits. The kept ids and the logits are those
   after masks, bias, penalties, temperature, top-k, top-p and min-p, in that order, with the tokens of
   this very path as history.
2. A drafted token is accepted iff its parent was accepted (or is the last committed token) and its id
   equals the target's token at its index. Nothing else enters: not q, not p(token), no second draw.
3. The first index at which no drafted token matches takes the target's token: the correction, or the
   bonus where nothing was drafted there. The round ends with it.
4. The round also ends right behind the first committed token that ends the answer: one of the end ids,
   the max_tokens-th of the output, or the last that the context holds. No bonus follows it.

So each committed token is the one that plain decoding would have put there, whatever was drafted; the
draft only decides how many of them one round finds.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from outrider.sampling.arrays import FloatRow
from outrider.sampling.logprobs import TokenLogprobs, token_logprobs
from outrider.sampling.sampler import NonFiniteLogits, TokenSampler
from outrider.sampling.tree import ROOT, DraftTree

__all__ = ["FinishReason", "Judgement", "TokenLogprobs", "judge", "token_logprobs"]


class FinishReason(enum.Enum):
    """Why an answer ended; the first two can be told by its tokens alone."""

    STOP = "stop"
    """An end id was committed."""
    LENGTH = "length"
    """max_tokens or the context's length was reached."""
    STOP_STRING = "stop_string"
    """The caller's text search found a stop string."""
    CANCELLED = "cancelled"
    """The caller went away, or a time limit passed."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one round commits."""

    committed: tuple[int, ...]
    """Accepted tokens, then the correction or bonus unless the answer ended before it."""
    accepted: int
    """How many of the committed tokens were drafted."""
    raw_accepted: int
    """How many drafted tokens matched, also those behind the end of the answer."""
    path: tuple[int, ...]
    """The accepted nodes of the tree, from the root on: [accepted]."""
    logprobs: tuple[TokenLogprobs, ...]
    """One per committed token; empty when the request did not ask for them."""
    finish_reason: FinishReason | None
    """None while the answer goes on."""
    stop_id: int | None
    """The end id that was committed, with FinishReason.STOP."""


def judge(
    tree: DraftTree,
    row_logits: Callable[[int], FloatRow],
    sampler: TokenSampler,
    *,
    max_length: int,
) -> Judgement:
    """Judge one round and advance `sampler` by exactly the committed tokens.

    A session that already stands at its end commits nothing and tells why it ended.

    Args:
        tree: the drafted tokens.
        row_logits: node -> the target's unprocessed logits behind that node, float32 [width]; -1 is
            the last committed token. Called only for rows that are needed.
        sampler: the session's sampler, standing at its last committed token.
        max_length: the context: tokens that prompt + output may have.

    Raises:
        NonFiniteLogits: when a row that decides is unusable; `sampler` is then as it was before.
    """
    start = sampler.position
    try:
        return _judge(tree, row_logits, sampler, max_length)
    except BaseException:
        sampler.truncate(start)
        raise


def _judge(
    tree: DraftTree, row_logits: Callable[[int], FloatRow], sampler: TokenSampler, max_length: int
) -> Judgement:
    num_top = sampler.parameters.logprobs
    committed: list[int] = []
    logprobs: list[TokenLogprobs] = []
    path: list[int] = []
    node: int | None = ROOT
    reason = _finish_reason(sampler, max_length)
    while node is not None and reason is None:
        row = row_logits(node)
        token = sampler.choose(row)
        if num_top is not None:
            logprobs.append(token_logprobs(row, token, num_top, sampler.vocab_size))
        committed.append(token)
        sampler.append(token)
        reason = _finish_reason(sampler, max_length)
        node = tree.child(node, token)
        if node is not None:
            path.append(node)
    # Ended on an accepted token: what was drafted behind it is only counted.
    num_behind = _num_matches_behind(node, tree, row_logits, sampler) if path and node is not None else 0
    return Judgement(
        committed=tuple(committed),
        accepted=len(path),
        raw_accepted=len(path) + num_behind,
        path=tuple(path),
        logprobs=tuple(logprobs),
        finish_reason=reason,
        stop_id=sampler.last_token if reason is FinishReason.STOP else None,
    )


def _finish_reason(sampler: TokenSampler, max_length: int) -> FinishReason | None:
    """Why the session ends at its last token, or None."""
    if sampler.num_output > 0 and sampler.last_token in sampler.end_ids:
        return FinishReason.STOP
    if sampler.num_output >= sampler.parameters.max_tokens or sampler.position >= max_length:
        return FinishReason.LENGTH
    return None


def _num_matches_behind(
    node: int, tree: DraftTree, row_logits: Callable[[int], FloatRow], sampler: TokenSampler
) -> int:
    """How many drafted tokens below an accepted `node` match as well, though the answer has ended.

    Only counted, never committed: the sampler comes back to where it was, rows without a drafted token
    behind them are not asked for, and an unusable row, which decides nothing here, ends the count.
    """
    end = sampler.position
    num_matches = 0
    try:
        while tree.children(node):
            token = sampler.choose(row_logits(node))
            match = tree.child(node, token)
            if match is None:
                break
            sampler.append(token)
            num_matches += 1
            node = match
    except NonFiniteLogits:
        pass
    finally:
        sampler.truncate(end)
    return num_matches
