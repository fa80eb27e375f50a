"""What the gateway counts of each request, by its own clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from outrider.sampling.acceptance import FinishReason
from outrider.telemetry import Metrics, Reading
from outrider.telemetry import metric_names as names

if TYPE_CHECKING:
    from outrider.wire.inference import Delta, Final


class GatewayMeter:
    """The requests of this process. Event loop only; scrapes read its numbers."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.num_waiting = 0
        self.num_running = 0
        metrics.read(
            lambda: [
                Reading(names.NUM_REQUESTS_WAITING, self.num_waiting),
                Reading(names.NUM_REQUESTS_RUNNING, self.num_running),
            ]
        )

    def arrived(self, model: str) -> RequestMeter:
        """A request begins now, for the model that is served."""
        return RequestMeter(self, model)


class RequestMeter:
    """One request, from its arrival to `ended`, `failed` or `cancelled`, of which the first counts."""

    def __init__(self, gateway: GatewayMeter, model: str) -> None:
        self._gateway = gateway
        self._model = model
        self._arrived_s = time.monotonic()
        self._first_s: float | None = None
        self._last_s = 0.0
        self._num_tokens = 0
        self._over = False
        gateway.num_waiting += 1
        metrics = gateway.metrics
        self._output = metrics.counter(names.GENERATION_TOKENS, model)

    def sent_on(self, num_prompt_tokens: int) -> None:
        """The prompt is on its way to the scheduler."""
        self._gateway.metrics.counter(names.PROMPT_TOKENS, self._model).inc(num_prompt_tokens)

    def delta(self, delta: Delta) -> None:
        """A chunk is ready; one of n tokens counts n."""
        if not delta.token_ids:
            return
        self._last_s = time.monotonic()
        if self._first_s is None:
            self._first_s = self._last_s
            self._gateway.num_waiting -= 1
            self._gateway.num_running += 1
            first = self._gateway.metrics.histogram(names.TIME_TO_FIRST_TOKEN, self._model)
            first.observe(self._first_s - self._arrived_s)
        self._num_tokens += len(delta.token_ids)
        self._output.inc(len(delta.token_ids))

    def ended(self, final: Final) -> None:
        """The answer is complete."""
        if not self._leave():
            return
        metrics = self._gateway.metrics
        metrics.histogram(names.E2E_REQUEST_LATENCY, self._model).observe(time.monotonic() - self._arrived_s)
        if self._first_s is not None and self._num_tokens > 1:
            per_token_s = (self._last_s - self._first_s) / (self._num_tokens - 1)
            metrics.histogram(names.INTER_TOKEN_LATENCY, self._model).observe(per_token_s)
        self._finished(final.finish_reason)

    def failed(self, reason: str) -> None:
        """It ended with an error of the table."""
        if self._leave():
            self._gateway.metrics.counter(names.REQUEST_ERRORS, self._model, reason).inc()

    def cancelled(self) -> None:
        """The caller has left."""
        if self._leave():
            self._finished(FinishReason.CANCELLED)

    def _finished(self, reason: FinishReason) -> None:
        self._gateway.metrics.counter(names.REQUEST_SUCCESS, self._model, reason.name.lower()).inc()

    def _leave(self) -> bool:
        if self._over:
            return False
        self._over = True
        if self._first_s is None:
            self._gateway.num_waiting -= 1
        else:
            self._gateway.num_running -= 1
        return True
