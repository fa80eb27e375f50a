"""Which rows of which sessions the next forward takes, and whose KV gives way when memory is short."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.rpc.errors import ContextExceeded
from outrider.worker.role import SHORT_TAIL
from outrider.worker.session import PROTECTED_TOKENS, Round, Session

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.runtime.sequence import Segment
    from outrider.worker.registry import Registry

IDLE_NS = 250_000_000
"""An older session whose scheduler has asked for nothing for so long may lose its KV to a younger one."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one session brings to a forward."""

    round_: Round
    segments: list[Segment]

    @property
    def num_rows(self) -> int:
        """Rows of all segments."""
        return sum(len(segment.tokens) for segment in self.segments)

    @property
    def num_prompt_rows(self) -> int:
        """Rows that count as a prompt's: a stretch that is not the last one, or is a long one."""
        chains = [segment for segment in self.segments if segment.parents is None]
        # The first row that is asked for is the last committed token's; what is behind it is drafted.
        rows = sum(min(segment.wanted, default=len(segment.tokens) - 1) + 1 for segment in chains)
        is_last = any(segment.wanted for segment in self.segments)
        return 0 if is_last and rows <= SHORT_TAIL else rows


@dataclass(frozen=True, slots=True)
class Forward:
    """One batch: parts whose KV pages are reserved."""

    parts: list[Part]

    @property
    def segments(self) -> list[Segment]:
        """All segments, in the order of the parts."""
        return [segment for part in self.parts for segment in part.segments]

    @property
    def num_rows(self) -> int:
        """Rows of all parts."""
        return sum(part.num_rows for part in self.parts)


class Former:
    """Forms forwards. Everything that waits is taken, up to the token budget.

    Order: the round that has waited longest, so that none waits for ever; then short ones, which are decoding
    and verifying; then prompts, the shortest first. All prompts together get one chunk per forward, so that
    they delay nobody by more. Should the longest waiting round be a prompt, shorter ones may overtake it in
    up to half of the chunk.

    Pages that others of the scope have run are taken over first, and of two prompts that are about to run the
    same page one waits for the other's.

    KV pages: when they run out, the latest admitted session gives way to older ones; its KV is rebuilt from
    its tokens later. A session that was rebuilt commits a page of tokens before it gives way again, except to
    the oldest active session, which always proceeds. So the oldest always gets on, and so does, in the end,
    every other.
    """

    def __init__(self, runtime: Runtime, registry: Registry, token_budget: int, prefill_chunk: int) -> None:
        self._runtime = runtime
        self._registry = registry
        self._token_budget = min(token_budget, runtime.max_rows)
        self._prefill_chunk = prefill_chunk

    def form(self, rounds: Sequence[Round], on_error: Callable[[Session, Exception], None]) -> Forward | None:
        """The next forward for `rounds`, oldest first; None when none of them can go on.

        `on_error` is told of sessions whose own work failed or that can never fit.
        """
        for round_ in rounds:
            if round_.job:
                self._runtime.reuse(round_.session.sequence, round_.session.tokens)
        parts: list[Part] = []
        under_way: set[bytes] = set()
        room, prompt_room = self._token_budget, self._prefill_chunk
        for round_ in _in_order(rounds):
            if parts and (round_.session.alone or room < 1):
                continue
            page = self._page_to_run(round_)
            if page is not None and page in under_way:
                continue
            share = prompt_room if parts else self._first_share(rounds)
            try:
                part = self._plan(round_, (room, share), rounds, parts)
            except Exception as error:  # noqa: BLE001  # ends this session and no other
                on_error(round_.session, error)
                continue
            if part is None:
                continue
            parts.append(part)
            if page is not None:
                under_way.add(page)
            room -= part.num_rows
            prompt_room -= part.num_prompt_rows
            if round_.session.alone:
                break
        return Forward(parts) if parts else None

    def _first_share(self, rounds: Sequence[Round]) -> int:
        """Rows of the chunk for the round that has waited longest, when it is a prompt.

        Example: with 900 tokens to go it gets of a chunk of 256 all 256 alone or beside a prompt of 1,000,
        156 beside one of 100, and 128 beside one of 500.
        """
        first, *others = rounds
        shorter = (
            other for other in others if _is_prompt(other) and _num_missing(other) < _num_missing(first)
        )
        page = self._page_to_run(first)
        # Those that will wait for its page need no rows now.
        wanted = sum(
            _num_missing(each) for each in shorter if page is None or self._page_to_run(each) != page
        )
        return max(self._prefill_chunk // 2, self._prefill_chunk - wanted)

    def _page_to_run(self, round_: Round) -> bytes | None:
        """Names the page that a prompt is about to run, where others could take it over."""
        if not _is_prompt(round_):
            return None
        return self._runtime.next_page(round_.session.sequence, round_.session.tokens)

    def _plan(
        self, round_: Round, rooms: tuple[int, int], rounds: Sequence[Round], parts: Sequence[Part]
    ) -> Part | None:
        if round_.job is None:
            return None
        while True:
            part = Part(round_, round_.job.plan(*rooms))
            if not part.segments:
                return None
            if self._make_room(round_, part.num_rows, rounds, parts):
                self._runtime.reserve(round_.session.sequence, part.num_rows)
                return part
            if any(other.sequence.num_pages for other in self._others(round_.session)):
                return None
            # Nobody else holds a page: waiting would not help.
            if not round_.job.shrink():
                raise ContextExceeded("the worker's KV memory is too small for the session (kv-budget-mib)")

    def _make_room(self, round_: Round, rows: int, rounds: Sequence[Round], parts: Sequence[Part]) -> bool:
        sequence = round_.session.sequence
        while not self._runtime.can_reserve(sequence, rows):
            victim = self._victim(round_.session, rounds, parts)
            if victim is None:
                return False
            self._preempt(victim)
        return True

    def _victim(self, session: Session, rounds: Sequence[Round], parts: Sequence[Part]) -> Session | None:
        planned = {part.round_.session for part in parts}
        holders = [
            other for other in self._others(session) if other.sequence.num_pages and other not in planned
        ]
        younger = [other for other in holders if other.ticket > session.ticket]
        choices = [[other for other in younger if other.length >= other.protected_until]]
        if session.ticket == min(round_.session.ticket for round_ in rounds):
            idle_before_ns = time.monotonic_ns() - IDLE_NS
            idle = [other for other in holders if not other.rounds and other.idle_since_ns <= idle_before_ns]
            choices += [younger, idle]
        chosen = next((group for group in choices if group), [])
        return max(chosen, key=lambda other: other.ticket, default=None)

    def _preempt(self, session: Session) -> None:
        self._runtime.release(session.sequence)
        self._registry.num_preemptions += 1
        session.protected_until = session.length + PROTECTED_TOKENS
        for round_ in session.rounds:
            if round_.job:
                round_.job.restart()

    def _others(self, session: Session) -> list[Session]:
        return [other for other in self._registry if other is not session]


def _num_missing(round_: Round) -> int:
    """Committed tokens without KV."""
    return round_.session.length - round_.session.sequence.length


def _is_prompt(round_: Round) -> bool:
    return _num_missing(round_) > SHORT_TAIL


def _in_order(rounds: Sequence[Round]) -> list[Round]:
    """The longest waiting one, then short ones, then prompts by what is left of them."""
    short = [round_ for round_ in rounds[1:] if not _is_prompt(round_)]
    prompts = [round_ for round_ in rounds[1:] if _is_prompt(round_)]
    return [*rounds[:1], *short, *sorted(prompts, key=_num_missing)]
