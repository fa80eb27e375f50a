"""The one list of span names and attribute keys; what is not here is not emitted. Metrics: `metric_names`.

```
gateway    chat <model>                              GenAI semantic conventions
scheduler    outrider.session                        one generation
scheduler      outrider.round                        one target pass of the session
scheduler        outrider.draft   (client)
draft              draft.propose  (server)
scheduler        outrider.verify  (client)
validator          validator.verify (server)
worker     worker.forward                            one batched pass, linked to each round that it served
scheduler  outrider.alert                            something that an alert rule did, a trace of its own
```
"""

from enum import StrEnum


class SpanName(StrEnum):
    """Names of spans; the gateway's is made by `chat_span_name`."""

    SESSION = "outrider.session"
    ROUND = "outrider.round"
    DRAFT = "outrider.draft"
    VERIFY = "outrider.verify"
    PROPOSE = "draft.propose"
    CHECK = "validator.verify"
    FORWARD = "worker.forward"
    ALERT = "outrider.alert"


class Attr(StrEnum):
    """Outrider's own attribute keys. Counts are integers, times are integers in microseconds."""

    # The session.
    SESSION_ID = "outrider.session_id"
    SEED = "outrider.seed"
    RULE = "outrider.rule"
    FINISH_REASON = "outrider.finish_reason"
    PROMPT_TOKENS = "outrider.prompt_tokens"
    ROUNDS = "outrider.rounds"
    REOPENS = "outrider.reopens"
    # The session or a round.
    DRAFTED = "outrider.drafted"
    ACCEPTED = "outrider.accepted"
    COMMITTED = "outrider.committed"
    # A round.
    ROUND = "outrider.round"
    EPOCH = "outrider.epoch"
    BASE_LENGTH = "outrider.base_length"
    K = "outrider.k"
    W = "outrider.w"
    SOURCE = "outrider.source"
    DISCARDED = "outrider.discarded"  # true when the round's result was dropped
    DRAFT_STATUS = "outrider.draft_status"  # why a round has the draft that it has: ok, late, missing ...
    # A worker's part of a round, or a forward.
    WORKER = "outrider.worker"  # its address
    QUEUE_US = "outrider.queue_us"
    COMPUTE_US = "outrider.compute_us"
    BATCH_SIZE = "outrider.batch_size"  # sessions in the forward
    ROWS = "outrider.rows"  # token rows of the forward
    # What it took to carry a round's events, on the scheduler's spans.
    SENT_BYTES = "outrider.sent_bytes"
    RECEIVED_BYTES = "outrider.received_bytes"
    ENCODE_US = "outrider.encode_us"
    DECODE_US = "outrider.decode_us"
    HOPS = "outrider.hops"  # events, each one way between two processes
    MODEL_VERSION = "outrider.model_version"
    NUMERICS_ID = "outrider.numerics_id"
    # An alert: the rule's name, fired, resolved, acted or refused, and the figure behind it.
    ALERT = "outrider.alert"
    ALERT_KIND = "outrider.alert_kind"
    ALERT_LEVEL = "outrider.alert_level"
    ALERT_METRIC = "outrider.alert_metric"
    ALERT_VALUE = "outrider.alert_value"  # a float, in the unit of the figure


class GenAi(StrEnum):
    """Keys of the GenAI semantic conventions that the gateway's span uses; existing names only."""

    OPERATION_NAME = "gen_ai.operation.name"
    PROVIDER_NAME = "gen_ai.provider.name"
    REQUEST_MODEL = "gen_ai.request.model"
    REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
    REQUEST_TEMPERATURE = "gen_ai.request.temperature"
    REQUEST_TOP_P = "gen_ai.request.top_p"
    REQUEST_TOP_K = "gen_ai.request.top_k"
    REQUEST_SEED = "gen_ai.request.seed"
    REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
    REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty"
    RESPONSE_MODEL = "gen_ai.response.model"
    RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
    USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
    USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"


class General(StrEnum):
    """Keys of the general semantic conventions."""

    ERROR_TYPE = "error.type"


CHAT_OPERATION = "chat"
PROVIDER = "outrider"


def chat_span_name(model: str) -> str:
    """The gateway's span, as the GenAI conventions name it: operation and model."""
    return f"{CHAT_OPERATION} {model}"


def is_declared_span(name: str) -> bool:
    """Whether a span of this name may be emitted."""
    return name in frozenset(SpanName) or name.startswith(f"{CHAT_OPERATION} ")


def is_declared_attribute(key: str) -> bool:
    """Whether an attribute of this key may be emitted."""
    return key in ATTRIBUTES


ATTRIBUTES: frozenset[str] = frozenset((*Attr, *GenAi, *General))
