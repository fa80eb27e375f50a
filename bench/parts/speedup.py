"""One session at a time: every configuration and every peer on every workload."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.configurations import PLAIN, Configuration
from bench.contest import Contest, hold
from bench.options import Options
from bench.processes import memory_bytes
from bench.spread import spread
from bench.stage import PEERS, Stage
from bench.turns import Subject, Turn
from outrider.sampling.parameters import SamplingParameters


async def run(stage: Stage, options: Options) -> dict[str, Any]:
    """All configurations and peers."""
    greedy = options.sampling.greedy
    return await compare(
        stage,
        options,
        options.sampling,
        # Peers draw other noise: their sampled answers have other lengths and other acceptance.
        peers=options.peers if greedy else (),
        minutes=options.limit(full=15, short=3),
    )


async def compare(
    stage: Stage, options: Options, sampling: SamplingParameters, *, peers: Sequence[str], minutes: float
) -> dict[str, Any]:
    """A contest with its summary."""
    configurations = options.usable(has_draft=stage.has_draft)
    processes = {PEERS[name][0] for name in peers}
    await stage.only({*(each.layout for each in configurations), *processes})
    subjects: list[Subject] = [
        await stage.ours(each, options.layout(each), sampling) for each in configurations
    ]
    exact = [subject.name for subject in subjects]
    subjects += [peer for name in peers if (peer := await stage.theirs(name)) is not None]
    contest = await hold(
        subjects,
        options.prompts,
        num_tokens=options.num_tokens,
        exact=exact,
        minutes=minutes,
        say=options.say,
        repeats=options.repeats,
    )
    _check_prompts(contest)
    return {
        "num_tokens": options.num_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "configurations": {each.name: describe(each, options) for each in configurations},
        "peers": {peer.name: peer.about for peer in stage.peers.values()},
        "summary": summary(contest, exact),
        "agreement_with_plain": {
            name: statistics.mean(shares) for name, shares in contest.agreements.items() if shares
        },
        "peak_memory_bytes": {name: memory_bytes(pid) for name, pid in stage.memory.items()},
        "others_cpu": as_json(spread(entry.others_cpu for entry in contest.entries)),
        "turns": [record(entry) for entry in contest.entries],
    }


def describe(configuration: Configuration, options: Options) -> dict[str, Any]:
    """What it is, for the record."""
    layout, speculation = options.layout(configuration), configuration.speculation
    return {
        "layout": layout.name,
        "draft": layout.draft,
        "flags": list(layout.flags),
        "environment": dict(layout.environment),
        "k": speculation.k,
        "w": speculation.w,
        "source": speculation.source.name.lower() if speculation.source else None,
        "min_confidence": speculation.min_confidence,
    }


def summary(contest: Contest, exact: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Workload -> subject -> figures; `to` holds ratios of speed to the reference and to each peer."""
    bases = [name for name in contest.subjects if name == PLAIN or name not in exact]
    return {
        workload: {name: _figures(contest, name, workload, bases) for name in contest.subjects}
        for workload in contest.workloads
    }


def record(entry: Any) -> dict[str, Any]:
    """One turn for the record; its ids were compared and are not kept."""
    turn: Turn = entry.turn
    return {
        "subject": entry.subject,
        "block": entry.block,
        "prompt": turn.prompt.name,
        "workload": turn.prompt.workload,
        "prompt_tokens": turn.prompt_tokens,
        "tokens": len(turn.ids),
        "total_s": round(turn.total_s, 4),
        "first_s": round(turn.first_s, 4),
        "gb_per_s": round(entry.gb_per_s, 2),
        "others_cpu": round(entry.others_cpu, 3),
    }


def _figures(contest: Contest, name: str, workload: str, bases: Sequence[str]) -> dict[str, Any]:
    turns = contest.of(name, workload)
    figures: dict[str, Any] = {
        "tok_per_s": as_json(spread(turn.rate for turn in turns)),
        "ttft_s": as_json(spread(turn.first_s for turn in turns)),
        "tpot_s": as_json(spread(turn.tpot_s for turn in turns if turn.tpot_s is not None)),
        "to": {
            base: as_json(
                spread(ours.rate / other.rate for ours, other in contest.pairs(name, base, workload))
            )
            for base in bases
            if base != name
        },
        "num_turns": len(turns),
    }
    if name != PLAIN and PLAIN in contest.subjects:
        pairs = contest.pairs(name, PLAIN, workload)
        figures["ttft_to_plain"] = as_json(spread(ours.first_s / other.first_s for ours, other in pairs))
    counters = [turn.counters for turn in turns if turn.counters is not None]
    if counters:
        rounds, drafted = sum(each.rounds for each in counters), sum(each.drafted for each in counters)
        figures["tau"] = sum(each.committed for each in counters) / rounds if rounds else 1.0
        figures["acceptance"] = sum(each.accepted for each in counters) / drafted if drafted else None
        figures["missed_proposals"] = sum(each.missed_proposals for each in counters)
    return figures


def as_json(found: Any) -> dict[str, float] | None:
    """A spread as an object."""
    if found is None:
        return None
    return {"median": found.median, "low": found.low, "high": found.high, "num": found.num}


def _check_prompts(contest: Contest) -> None:
    """A peer that was given another prompt would be no peer. Raises RuntimeError."""
    lengths: dict[str, int] = {}
    for entry in contest.entries:
        turn = entry.turn
        if turn.prompt_tokens != lengths.setdefault(turn.prompt.name, turn.prompt_tokens or 0):
            raise RuntimeError(
                f"prompt {turn.prompt.name} has {turn.prompt_tokens} tokens for {entry.subject}, and "
                f"{lengths[turn.prompt.name]} for others"
            )
