"""Channels to other processes."""

from __future__ import annotations

import json

import grpc

from outrider.rpc.limits import KEEPALIVE_TIME_S, KEEPALIVE_TIMEOUT_S, MAX_MESSAGE_BYTES

RECONNECT_MIN_S = 0.1
RECONNECT_MAX_S = 2.0
CONNECT_TIMEOUT_S = 5.0

# A stream is never retried by gRPC: what it had said by then is the caller's to know.
_RETRIED = (
    ("outrider.v1.WorkerService", "GetModelInfo"),
    ("outrider.v1.WorkerService", "GetTokenizer"),
    ("outrider.v1.WorkerService", "GetLoad"),
    ("outrider.v1.SchedulerService", "Describe"),
    ("outrider.v1.InferenceService", "ListModels"),
)
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": service, "method": method} for service, method in _RETRIED],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
}
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", round(KEEPALIVE_TIME_S * 1000)),
    ("grpc.keepalive_timeout_ms", round(KEEPALIVE_TIMEOUT_S * 1000)),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.initial_reconnect_backoff_ms", round(RECONNECT_MIN_S * 1000)),
    ("grpc.max_reconnect_backoff_ms", round(RECONNECT_MAX_S * 1000)),
    # Despite its name: the time that one attempt to connect gets.
    ("grpc.min_reconnect_backoff_ms", round(CONNECT_TIMEOUT_S * 1000)),
    # Two channels to one address must not share their backoff.
    ("grpc.use_local_subchannel_pool", 1),
    # An HTTP proxy of the environment is for the outside; processes of one deployment meet directly.
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
)


def open_channel(address: str) -> grpc.aio.Channel:
    """A lazily connecting channel to `host:port` with limits, keepalive and quick reconnects.

    Must be called on the event loop that will use it; close it with `await channel.close()`.
    """
    return grpc.aio.insecure_channel(address, options=_OPTIONS)
