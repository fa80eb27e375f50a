"""Bytes, messages and codec time of the streams with one kind of peer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from outrider.telemetry.metric_names import (
    STREAM_BYTES,
    STREAM_DECODE_SECONDS,
    STREAM_ENCODE_SECONDS,
    STREAM_MESSAGES,
)

if TYPE_CHECKING:
    from outrider.telemetry.metrics import Metrics


class StreamMeter:
    """Counts whole messages."""

    def __init__(self, metrics: Metrics, peer: str) -> None:
        """`peer` is the role at the other end, such as "validator"."""
        self._sent = metrics.counter(STREAM_BYTES, "sent", peer)
        self._received = metrics.counter(STREAM_BYTES, "received", peer)
        self._num_sent = metrics.counter(STREAM_MESSAGES, "sent", peer)
        self._num_received = metrics.counter(STREAM_MESSAGES, "received", peer)
        self._encoding = metrics.counter(STREAM_ENCODE_SECONDS, peer)
        self._decoding = metrics.counter(STREAM_DECODE_SECONDS, peer)

    def encoded(self, message: Any, started_ns: int) -> None:
        """A message is about to be sent that was begun at `started_ns` of the monotonic clock."""
        self._sent.inc(message.ByteSize())
        self._num_sent.inc()
        self._encoding.inc((time.monotonic_ns() - started_ns) / 1e9)

    def decoded(self, message: Any, started_ns: int) -> None:
        """A message was received, and has been decoded since `started_ns`."""
        self._received.inc(message.ByteSize())
        self._num_received.inc()
        self._decoding.inc((time.monotonic_ns() - started_ns) / 1e9)
