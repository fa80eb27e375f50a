"""Turns in short rotation, so that every subject meets the same states of a machine that drifts."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from bench.machine import read_bandwidth
from bench.processes import cpu_s, machine_busy_s
from bench.turns import Subject, Turn, agreement, check_equal
from bench.workloads import Prompt

WARM_UP_TOKENS = 12
NUM_PROBES = 3
MAX_DRIFT = 0.15
"""Two turns are a pair only while the machine read memory equally fast in both, up to this share,"""
MAX_OTHERS = 0.1
"""and while nobody else used more than this share of the cores."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One turn and its circumstances."""

    subject: str
    block: int
    """Turns of one block answer one prompt, right behind each other."""
    turn: Turn
    gb_per_s: float
    """What one core read from memory just before and just after: tells states of a shared machine apart."""
    others_cpu: float
    """Share of the machine's cores that anybody else used meanwhile: idle subjects, or programs outside."""


@dataclass(frozen=True, slots=True)
class Contest:
    """All turns of a run."""

    num_tokens: int
    entries: tuple[Entry, ...]
    agreements: dict[str, list[float]]
    """Peer -> per prompt, the share of the answer up to the first id that differs from the reference's."""

    def of(self, subject: str, workload: str | None = None) -> list[Turn]:
        """A subject's turns."""
        return [
            entry.turn
            for entry in self.entries
            if entry.subject == subject and workload in (None, entry.turn.prompt.workload)
        ]

    def pairs(self, ours: str, other: str, workload: str | None = None) -> list[tuple[Turn, Turn]]:
        """Turns of two subjects on the same prompt, in the same state of the machine."""
        found: list[tuple[Turn, Turn]] = []
        others = {entry.block: entry for entry in self.entries if entry.subject == other}
        for entry in self.entries:
            partner = others.get(entry.block)
            if entry.subject != ours or partner is None:
                continue
            if workload not in (None, entry.turn.prompt.workload):
                continue
            if _comparable(entry, partner):
                found.append((entry.turn, partner.turn))
        return found

    @property
    def workloads(self) -> list[str]:
        """In the order of their first turns."""
        return list(dict.fromkeys(entry.turn.prompt.workload for entry in self.entries))

    @property
    def subjects(self) -> list[str]:
        """In the order of their first turns."""
        return list(dict.fromkeys(entry.subject for entry in self.entries))


async def hold(
    subjects: Sequence[Subject],
    prompts: Sequence[Prompt],
    *,
    num_tokens: int,
    exact: Collection[str],
    minutes: float,
    say: Callable[[str], None],
    repeats: int = 1,
) -> Contest:
    """Let all subjects answer all prompts, one at a time.

    Args:
        subjects: the first of those in `exact` is the reference.
        prompts: in the order in which they are asked.
        num_tokens: longest answer.
        exact: names of the subjects whose ids must be the reference's.
        minutes: no further prompt is begun after this time, but each workload gets one.
        say: told a line per prompt.
        repeats: how often all prompts are asked.

    Raises:
        IdsDiffer: two of the `exact` subjects gave different ids.
    """
    for subject in subjects:
        await subject.turn(prompts[0], WARM_UP_TOKENS)
    entries: list[Entry] = []
    agreements: dict[str, list[float]] = {
        subject.name: [] for subject in subjects if subject.name not in exact
    }
    asked = [prompt for _ in range(repeats) for prompt in prompts]
    seen: set[str] = set()
    deadline = time.monotonic() + minutes * 60
    for block, prompt in enumerate(asked):
        if time.monotonic() > deadline and prompt.workload in seen:
            continue
        seen.add(prompt.workload)
        # Rotated: nobody always follows the same neighbour.
        shift = block % len(subjects)
        turns: dict[str, Turn] = {}
        for subject in (*subjects[shift:], *subjects[:shift]):
            entry = await _take(subject, prompt, num_tokens, block)
            entries.append(entry)
            turns[subject.name] = entry.turn
        _compare(turns, [subject.name for subject in subjects if subject.name in exact], agreements)
        say(_line(block, len(asked), prompt, [(subject.name, turns[subject.name]) for subject in subjects]))
    # The order of the table, not of the first block.
    order = [subject.name for subject in subjects]
    entries.sort(key=lambda entry: (entry.block, order.index(entry.subject)))
    return Contest(num_tokens, tuple(entries), agreements)


async def _take(subject: Subject, prompt: Prompt, num_tokens: int, block: int) -> Entry:
    # The client's own part belongs to the subject: it is there for everyone.
    own = [*subject.pids, os.getpid()]
    before_gb = _bandwidth()
    busy_s, own_s, start = machine_busy_s(), cpu_s(own), time.perf_counter()
    turn = await subject.turn(prompt, num_tokens)
    core_s = (time.perf_counter() - start) * (os.cpu_count() or 1)
    others_s = (machine_busy_s() - busy_s) - (cpu_s(own) - own_s)
    return Entry(subject.name, block, turn, (before_gb + _bandwidth()) / 2, max(0.0, others_s / core_s))


def _comparable(one: Entry, other: Entry) -> bool:
    alike = abs(one.gb_per_s / other.gb_per_s - 1) <= MAX_DRIFT
    return alike and max(one.others_cpu, other.others_cpu) <= MAX_OTHERS


def _bandwidth() -> float:
    return statistics.median(read_bandwidth() for _ in range(NUM_PROBES))


def _compare(turns: dict[str, Turn], exact: Sequence[str], agreements: dict[str, list[float]]) -> None:
    if not exact:
        return
    reference = turns[exact[0]]
    for name in exact[1:]:
        check_equal(reference, exact[0], turns[name], name)
    for name, shares in agreements.items():
        longest = max(len(reference.ids), len(turns[name].ids), 1)
        shares.append(agreement(reference, turns[name]) / longest)


def _line(block: int, num_blocks: int, prompt: Prompt, turns: Sequence[tuple[str, Turn]]) -> str:
    rates = "  ".join(f"{name} {turn.rate:.1f}" for name, turn in turns)
    return f"{block + 1}/{num_blocks} {prompt.name}  tok/s: {rates}"
