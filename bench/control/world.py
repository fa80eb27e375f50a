"""A deployment in numbers: sessions arrive, rounds cost what was measured, recorded drafts are judged."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.control.traces import Trace
from outrider.wire.generation import DraftSource
from services.scheduler.control.choice import Bounds, Choice, Judged, Offer, Outcome, Policy, View
from services.scheduler.control.shared import Shared
from services.scheduler.sources.ngram import LONGEST, SHORTEST, NgramIndex

MAX_K = 16
MOST_SESSIONS = 16
DRAFT = "draft"

PolicyOf = Callable[[Shared, str], Policy]


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds, of draft and target that take turns on the same cores."""

    # Seconds of a step by rows; between them a line, beyond the last one the slope before it.
    steps: tuple[tuple[int, float], ...] = ((1, 0.110), (8, 0.116), (12, 0.136), (16, 0.170), (48, 0.427))
    # A pass of the draft; each session more in it adds a share of one.
    token_s: float = 0.0105
    share: float = 0.3
    # Of a proposal, whatever its depth: hand-over, network.
    ask_s: float = 0.003

    def step_s(self, rows: float) -> float:
        """Of a step of the target."""
        below, above = self.steps[-2], self.steps[-1]
        for one, other in zip(self.steps, self.steps[1:], strict=False):
            if rows <= other[0]:
                below, above = one, other
                break
        return below[1] + (above[1] - below[1]) * (rows - below[0]) / (above[0] - below[0])


@dataclass(slots=True)
class Running:
    """One session."""

    trace: Trace
    policy: Policy
    arrived_s: float
    index: NgramIndex
    tokens: list[int]
    position: int = 0
    num_told: int = 0
    began_s: float = 0.0

    @property
    def left(self) -> int:
        """Tokens of the answer that are to come."""
        return len(self.trace.output) - self.position


@dataclass(slots=True)
class Result:
    """What one policy made of a load."""

    tokens: int = 0
    seconds: float = 0.0
    # Per request: seconds from its arrival to its end, by its tokens.
    per_token_s: list[float] = field(default_factory=list)
    # Per round: time, asked for from the lookup, asked for from the model.
    choices: list[tuple[float, int, int]] = field(default_factory=list)
    # While somebody was served.
    busy_s: float = 0.0

    @property
    def speed(self) -> float:
        """Tokens per second of the time in which somebody was served."""
        return self.tokens / self.busy_s if self.busy_s else 0.0

    @property
    def throughput(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def mean_per_token_s(self) -> float:
        """Mean over requests, queue included."""
        return sum(self.per_token_s) / len(self.per_token_s) if self.per_token_s else 0.0


def replay(
    traces: Sequence[Trace],
    policy_of: PolicyOf,
    requests_per_s: float,
    num_requests: int,
    costs: Costs,
    seed: int = 1,
) -> Result:
    """Serve so many requests that arrive at random (Poisson), each one of the traces.

    All sessions go through their rounds in step: the draft serves those that ask for it in shared passes,
    then the target judges all of them in one step.
    """
    draw = random.Random(seed)  # noqa: S311  # no secret
    shared = Shared(shares_cores=True)
    arrivals, clock = [], 0.0
    for _ in range(num_requests):
        clock += draw.expovariate(requests_per_s)
        arrivals.append((clock, draw.choice(traces)))
    now, result = 0.0, Result()
    running: list[Running] = []
    first_s = arrivals[0][0]
    while arrivals or running:
        if not running:
            now = max(now, arrivals[0][0])
        while arrivals and arrivals[0][0] <= now and len(running) < MOST_SESSIONS:
            arrived_s, trace = arrivals.pop(0)
            running.append(_begin(trace, policy_of(shared, trace.workload), arrived_s))
        took_s = _cycle(running, shared, costs, now, result)
        now, result.busy_s = now + took_s, result.busy_s + took_s
        for session in [each for each in running if not each.left]:
            running.remove(session)
            result.per_token_s.append((now - session.arrived_s) / len(session.trace.output))
    result.seconds = now - first_s
    return result


def _begin(trace: Trace, policy: Policy, arrived_s: float) -> Running:
    tokens = list(trace.prompt)
    return Running(
        trace, policy, arrived_s, NgramIndex(tokens, SHORTEST, LONGEST), tokens, num_told=len(tokens)
    )


def _cycle(running: Sequence[Running], shared: Shared, costs: Costs, now: float, result: Result) -> float:
    """One round of every session; seconds that it took."""
    rounds = [_chosen(session) for session in running]
    depths = [_drafted(session, choice) for session, (_, choice, _) in zip(running, rounds, strict=True)]
    passes, wait_s = max(depths, default=0), 0.0
    if passes:
        together = [sum(depth > at for depth in depths) for at in range(passes)]
        wait_s = costs.ask_s + sum(costs.token_s * (1 + costs.share * (num - 1)) for num in together)
    rows = sum(1 + choice.num_lookup + depth for (_, choice, _), depth in zip(rounds, depths, strict=True))
    step_s = costs.step_s(rows)
    for session, (view, choice, offered), depth in zip(running, rounds, depths, strict=True):
        shared.verify.add(step_s, rows=rows, batch_size=len(running), context=len(session.tokens))
        if depth:
            shared.draft(DRAFT).add(wait_s, depth=depth, num_behind=view.num_behind)
            session.num_told = len(session.tokens)
        outcome = _judged(session, view, choice, offered, depth, wait_s + step_s)
        shared.applied(outcome.committed, wait_s if depth else 0.0, outcome.seconds)
        session.policy.observe(outcome)
        result.tokens += outcome.committed
        result.choices.append((now, choice.num_lookup, choice.num_model))
    return wait_s + step_s


def _chosen(session: Running) -> tuple[View, Choice, tuple[int, ...]]:
    bounds = Bounds(1, min(MAX_K, session.left - 1)) if session.left > 1 else Bounds(0, 0)
    offered = session.index.continuation(bounds.max_k) if bounds.max_k else ()
    offers = (Offer(DraftSource.NGRAM, session.index.match_length, len(offered)),) if offered else ()
    behind = len(session.tokens) - session.num_told
    view = View(bounds, len(session.tokens), offers, DRAFT, num_behind=behind)
    return view, session.policy.choose(view), offered


def _drafted(session: Running, choice: Choice) -> int:
    """Tokens that the model proposes: it ends where its confidence does."""
    at = min(session.position + choice.num_lookup, len(session.trace.output) - 1)
    product, drafted = 1.0, 0
    for confidence in session.trace.confidences[at][: choice.num_model]:
        drafted, product = drafted + 1, product * confidence
        if product < choice.min_confidence:
            break
    return drafted


def _products(confidences: Sequence[float]) -> tuple[float, ...]:
    return tuple(itertools.accumulate(confidences, operator.mul))


def _judged(
    session: Running, view: View, choice: Choice, offered: tuple[int, ...], depth: int, seconds: float
) -> Outcome:
    output, at = session.trace.output, session.position
    behind = min(at + choice.num_lookup, len(output) - 1)
    good = Judged.by(offered[: choice.num_lookup], output[at:]).num_right
    right = 0
    if good == choice.num_lookup and depth:
        right = min(depth, session.trace.right[min(at + good, len(output) - 1)])
    committed = min(1 + good + right, session.left)
    new = output[at : at + committed]
    session.position += committed
    session.tokens.extend(new)
    session.index.update()
    return Outcome(
        view,
        choice,
        tuple(Judged.by(offered, new) for _ in view.offers),
        choice.num_lookup,
        good,
        depth,
        right,
        committed=committed,
        seconds=seconds,
        model_answered=depth > 0,
        confidences=_products(session.trace.confidences[behind][:depth]),
    )
