"""How an answer came about, for a person or for a program."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from outrider.client import Completion, Final, SourceCounters, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Pace:
    """When the tokens came, in seconds since the request was sent."""

    first_s: float
    """The first tokens."""
    last_s: float
    """The last ones."""
    num_first: int
    """Tokens that came with the first."""
    num_tokens: int

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second behind the first chunk; a gap between chunks is not the time of one token."""
        if self.last_s <= self.first_s:
            return None
        return (self.num_tokens - self.num_first) / (self.last_s - self.first_s)


def as_text(final: Final, pace: Pace | None) -> str:
    """A few lines for a terminal."""
    counters = final.counters
    first = [f"{final.prompt_tokens} + {final.completion_tokens} tokens"]
    if pace is not None:
        first.append(f"first after {pace.first_s:.2f} s")
        if pace.tokens_per_s is not None:
            first.append(f"{pace.tokens_per_s:.1f} tokens/s")
    first.append(f"finished by {final.finish_reason.name.lower()}")
    first.append(f"seed {final.seed}")
    second = [
        f"{counters.rounds} rounds",
        f"{counters.drafted} drafted",
        f"{counters.accepted} accepted ({counters.acceptance_rate:.1%})",
        f"tau {counters.tau:.2f}",
        f"{counters.reopens} reopens",
    ]
    drafted = [each for each in counters.by_source if each.drafted]
    sources = [_by_source(each) for each in drafted] if len(drafted) > 1 else []
    third = [f"numerics {final.numerics_id} ({final.exactness.name.lower()})"]
    if final.changed_replica:
        third.append("the replica changed")
    if final.draft_status:
        third.append(f"draft {final.draft_status}")
    if final.trace_id:
        third.append(f"trace {final.trace_id}")
    return "\n".join(" · ".join(line) for line in (first, second, sources, third) if line)


def as_json(completion: Completion, *, with_logprobs: bool) -> dict[str, Any]:
    """One object with a fixed set of keys; `logprobs` is there only when it was asked for."""
    final, counters = completion.final, completion.final.counters
    document: dict[str, Any] = {
        "text": completion.text,
        "token_ids": list(completion.token_ids),
        "prompt_tokens": final.prompt_tokens,
        "completion_tokens": final.completion_tokens,
        "seed": final.seed,
        "finish_reason": final.finish_reason.name.lower(),
        "rounds": counters.rounds,
        "drafted": counters.drafted,
        "accepted": counters.accepted,
        "acceptance_rate": counters.acceptance_rate,
        "tau": counters.tau,
        "reopens": counters.reopens,
        "raw_accepted": counters.raw_accepted,
        "discarded_rounds": counters.discarded_rounds,
        "missed_proposals": counters.missed_proposals,
        "drafted_by_position": list(counters.drafted_by_position),
        "accepted_by_position": list(counters.accepted_by_position),
        "by_source": [
            {"source": each.source.name.lower(), "drafted": each.drafted, "accepted": each.accepted}
            for each in counters.by_source
        ],
        "costs": asdict(final.costs),
        "numerics_id": final.numerics_id,
        "trace_id": final.trace_id,
    }
    if with_logprobs:
        pairs = zip(completion.token_ids, completion.logprobs, strict=True)
        document["logprobs"] = [_entry(token_id, entry) for token_id, entry in pairs]
    return document


def _by_source(counted: SourceCounters) -> str:
    share = counted.accepted / counted.drafted
    return f"{counted.source.name.lower()} {counted.accepted} of {counted.drafted} ({share:.1%})"


def _entry(token_id: int, entry: TokenLogprobs) -> dict[str, Any]:
    top = zip(entry.top_ids, entry.top_logprobs, strict=True)
    return {
        "token_id": token_id,
        "logprob": entry.logprob,
        "top": [{"token_id": top_id, "logprob": logprob} for top_id, logprob in top],
    }
