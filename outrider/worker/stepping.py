"""One step of the engine: form a forward, run it, hand its logits out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.worker.desk import Desk
    from outrider.worker.forming import Former, Forward
    from outrider.worker.gathering import Gathering
    from outrider.worker.metering import WorkerMeter
    from outrider.worker.spans import Spans

log = structlog.get_logger(__name__)


class Stepper:
    """Steps the rounds that wait at the desk. Engine's thread only."""

    def __init__(
        self,
        runtime: Runtime,
        desk: Desk,
        former: Former,
        spans: Spans,
        meter: WorkerMeter,
        gathering: Gathering,
    ) -> None:
        self._runtime = runtime
        self._desk = desk
        self._former = former
        self._spans = spans
        self._meter = meter
        self._gathering = gathering

    def step(self) -> bool:
        """Run one forward; False when nothing can be run."""
        rounds = self._desk.active_rounds()
        forward = self._former.form(rounds, self._desk.fail) if rounds else None
        if forward is None:
            return False
        started_ns, num_rows = time.monotonic_ns(), forward.num_rows
        served = [part.round_ for part in forward.parts]
        for round_ in served:
            round_.joined(started_ns=started_ns, batch_size=len(served), rows=num_rows)
        try:
            segments = forward.segments
            logits = self._runtime.step(segments)
        except Exception as error:  # noqa: BLE001  # told to the sessions that it concerns
            self._separate(forward, error)
            return True
        ended_ns = time.monotonic_ns()
        took_s = (ended_ns - started_ns) / 1e9
        self._meter.forward(segments, rows=num_rows, batch_size=len(served), took_s=took_s)
        self._spans.forward(served, num_rows, started_ns, ended_ns)
        self._hand_out(forward, logits)
        self._gathering.ran((round_.session for round_ in served), ended_ns - started_ns, ended_ns)
        return True

    def _hand_out(self, forward: Forward, logits: list[Any]) -> None:
        for part in forward.parts:
            own, logits = logits[: len(part.segments)], logits[len(part.segments) :]
            round_, job = part.round_, part.round_.job
            round_.session.alone = False
            try:
                answer = job.advance(own) if job else None
                # Before the answer, which may end the session.
                self._runtime.share(round_.session.sequence, round_.session.tokens)
                if answer is not None:
                    self._desk.answer(round_, answer)
            except Exception as error:  # noqa: BLE001  # ends this session and no other
                self._desk.fail(round_.session, error)

    def _separate(self, forward: Forward, error: Exception) -> None:
        """A forward failed: its only session ends; of several each runs by itself next, to find the fault."""
        if len(forward.parts) == 1:
            self._desk.fail(forward.parts[0].round_.session, error)
            return
        log.warning("forward_failed", batch_size=len(forward.parts), exc_info=error)
        for part in forward.parts:
            session = part.round_.session
            self._runtime.release(session.sequence)
            session.alone = True
            if part.round_.job:
                part.round_.job.restart()
