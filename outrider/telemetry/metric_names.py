"""The one list of metrics; what is not here is not exported. docs/metrics.md is made from it.

Numerators and denominators are exported, and rates are left to PromQL; the few ratios among the gauges are
for whoever looks without it. Words are those of docs/architecture.md.
"""

from __future__ import annotations

import enum

from outrider.telemetry.metric import In, Kind, Metric

GATEWAY = (In.GATEWAY,)
SCHEDULER = (In.SCHEDULER,)
WORKERS = (In.VALIDATOR, In.DRAFT)
LINKED = (In.SCHEDULER, *WORKERS)
ALL = tuple(In)

MODEL = ("model_name",)
SOURCE = ("model_name", "draft_source")

LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TOKEN_TIMES = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0)
ANSWER_TIMES = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
STEP_TIMES = (
    *(0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0),
)
ROW_COUNTS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
BATCH_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Phase(enum.StrEnum):
    """Values of `phase`: parts of a round. The scheduler's own, and what its workers report of theirs."""

    ROUND = "round"
    PREFILL = "prefill"
    DRAFT = "draft"
    LOOKUP = "lookup"
    VERIFY = "verify"
    DRAFT_QUEUE = "draft_queue"
    DRAFT_COMPUTE = "draft_compute"
    VERIFY_QUEUE = "verify_queue"
    VERIFY_COMPUTE = "verify_compute"
    # A worker's, of every round that it answers.
    QUEUE = "queue"
    COMPUTE = "compute"


def _counter(stem: str, processes: tuple[In, ...], text: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(stem, Kind.COUNTER, processes, text, labels)


def _gauge(stem: str, processes: tuple[In, ...], text: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(stem, Kind.GAUGE, processes, text, labels)


def _histogram(
    stem: str,
    processes: tuple[In, ...],
    text: str,
    buckets: tuple[float, ...],
    labels: tuple[str, ...] = MODEL,
) -> Metric:
    return Metric(stem, Kind.HISTOGRAM, processes, text, labels, buckets)


# Requests.
NUM_REQUESTS_RUNNING = _gauge(
    "num_requests_running",
    ALL,
    "Gateway: requests whose first token has come. Scheduler: sessions that have a validator. Draft, "
    "validator: open sessions that a forward has served.",
)
NUM_REQUESTS_WAITING = _gauge(
    "num_requests_waiting",
    ALL,
    "Gateway: requests without a token yet. Scheduler: requests that wait for a validator. Draft, "
    "validator: open sessions that no forward has served yet.",
)
TIME_TO_FIRST_TOKEN = _histogram(
    "time_to_first_token_seconds",
    GATEWAY,
    "From the arrival of a request to its first chunk with a token.",
    LATENCIES,
)
INTER_TOKEN_LATENCY = _histogram(
    "inter_token_latency_seconds",
    GATEWAY,
    "Time per output token (TPOT): one value per request, (last chunk - first chunk with a token) / (n - "
    "1) with n output tokens, whatever their chunks are; none for n = 1. Not the gap between chunks.",
    TOKEN_TIMES,
)
E2E_REQUEST_LATENCY = _histogram(
    "e2e_request_latency_seconds",
    GATEWAY,
    "From the arrival of a request to its final event; requests that fail or are cancelled are left out.",
    ANSWER_TIMES,
)
REQUEST_QUEUE_TIME = _histogram(
    "request_queue_time_seconds",
    SCHEDULER,
    "Time until a validator took the session, and from its arrival there to the first forward that served"
    " it.",
    LATENCIES,
)
PROMPT_TOKENS = _counter(
    "prompt_tokens_total", GATEWAY, "Prompt tokens of requests that were sent on.", MODEL
)
GENERATION_TOKENS = _counter(
    "generation_tokens_total",
    GATEWAY,
    "Output tokens given out, the end id included; those behind a stop string are not given out. Its rate"
    " is the token goodput.",
    MODEL,
)
REQUEST_SUCCESS = _counter(
    "request_success_total",
    GATEWAY,
    "Requests that ended without an error: stop, length, stop_string, or cancelled by the caller.",
    ("model_name", "finished_reason"),
)
REQUEST_ERRORS = _counter(
    "request_errors_total",
    GATEWAY,
    "Requests that ended with an error, by its reason in the error table.",
    ("model_name", "reason"),
)

# Rounds. One is counted once it can hardly be cut any more: eight rounds later, or when its session ends.
ROUNDS = _counter(
    "rounds_total",
    SCHEDULER,
    "Target passes over the last committed token and k >= 0 drafted tokens, result applied. A prefill "
    "that verifies no draft is none.",
    SOURCE,
)
COMMITTED_TOKENS = _counter(
    "committed_tokens_total",
    SCHEDULER,
    "Tokens that those rounds committed, correction and bonus included. Mean acceptance length (tau) = "
    "committed_tokens_total / rounds_total.",
    SOURCE,
)
NUM_DRAFTS = _counter(
    "spec_decode_num_drafts_total",
    SCHEDULER,
    "Rounds that drafted (k >= 1).",
    SOURCE,
)
NUM_DRAFT_TOKENS = _counter(
    "spec_decode_num_draft_tokens_total",
    SCHEDULER,
    "Tokens put to the target for a decision; in a tree every node. Tokens cut before that are not among "
    "them.",
    SOURCE,
)
NUM_ACCEPTED_TOKENS = _counter(
    "spec_decode_num_accepted_tokens_total",
    SCHEDULER,
    "Drafted tokens that were committed; correction and bonus are not. Acceptance rate = this / "
    "spec_decode_num_draft_tokens_total.",
    SOURCE,
)
NUM_RAW_ACCEPTED_TOKENS = _counter(
    "spec_decode_num_raw_accepted_tokens_total",
    SCHEDULER,
    "Drafted tokens that matched, before the cut at an end id, a stop string or the length limit.",
    SOURCE,
)
NUM_DRAFT_TOKENS_PER_POS = _counter(
    "spec_decode_num_draft_tokens_per_pos_total",
    SCHEDULER,
    "Rounds that put a drafted token of this position (from 0) to the target; in a tree the position is "
    "the depth.",
    (*SOURCE, "position"),
)
NUM_ACCEPTED_TOKENS_PER_POS = _counter(
    "spec_decode_num_accepted_tokens_per_pos_total",
    SCHEDULER,
    "Rounds whose drafted token of this position (from 0) was committed. Divided by "
    "spec_decode_num_drafts_total it is the unconditional acceptance at the position.",
    (*SOURCE, "position"),
)
MEAN_ACCEPTANCE_LENGTH = _gauge(
    "mean_acceptance_length",
    SCHEDULER,
    "Committed tokens / rounds over the last 512 rounds that drafted from this source. 1.0: nothing is "
    "accepted.",
    SOURCE,
)
DISCARDED_ROUNDS = _counter(
    "discarded_rounds_total",
    SCHEDULER,
    "Rounds whose result was dropped: late, repeated, or behind a shortened end.",
    MODEL,
)
MISSED_PROPOSALS = _counter(
    "missed_proposals_total", SCHEDULER, "Proposals that did not come in time or at all.", MODEL
)
REOPENS = _counter(
    "reopens_total",
    SCHEDULER,
    "Times that a session was opened again on a validator.",
    MODEL,
)
ROUND_DURATION = _histogram(
    "round_duration_seconds",
    (In.SCHEDULER, *WORKERS),
    "Where a round's time goes. Scheduler: round (all of it), prefill (a first round that verifies no "
    "draft), draft (wait for a draft model), lookup (sources that run in the scheduler), verify (wait for"
    " a verdict, prefill excepted); draft_queue, draft_compute, verify_queue, verify_compute: what the "
    "workers report of those waits. Draft, validator: queue (arrival to first forward) and compute (from "
    "there to the answer) of every round.",
    STEP_TIMES,
    ("model_name", "phase"),
)

# Alert rules of the scheduler.
ALERTS_FIRED = _counter(
    "alerts_fired_total",
    SCHEDULER,
    "Times that an alert rule fired: its figure was out of bounds for the rule's window.",
    ("alert", "level"),
)
ALERT_FIRING = _gauge(
    "alert_firing",
    SCHEDULER,
    "1 from the time that an alert rule fires until its figure is well inside the bounds again, else 0.",
    ("alert", "level"),
)

# The shared store of the scheduler.
STORE_HEALTHY = _gauge("store_healthy", SCHEDULER, "1 while the store is used; 0 while it is left alone.")
STORE_LOOKUPS = _counter(
    "store_lookups_total",
    SCHEDULER,
    "Lookups of patterns and answers that were answered in time; result is hit or miss.",
    ("result",),
)
STORE_FAILED_READS = _counter(
    "store_failed_reads_total",
    SCHEDULER,
    "Reads that failed, came too late, or were not tried because the store is left alone.",
)
STORE_WRITES = _counter("store_writes_total", SCHEDULER, "Entries and counts that were written.")
STORE_DROPPED_WRITES = _counter(
    "store_dropped_writes_total", SCHEDULER, "Writes that were refused, failed, or were too many at once."
)

# Streams between scheduler and workers.
STREAM_BYTES = _counter(
    "stream_bytes_total",
    LINKED,
    "Serialized stream messages, without the framing of gRPC, by direction (sent, received) and role of "
    "the peer.",
    ("direction", "peer"),
)
STREAM_MESSAGES = _counter(
    "stream_messages_total",
    LINKED,
    "Stream messages; one may carry events of many sessions.",
    ("direction", "peer"),
)
STREAM_ENCODE_SECONDS = _counter(
    "stream_encode_seconds_total", LINKED, "Time to make messages of values.", ("peer",)
)
STREAM_DECODE_SECONDS = _counter(
    "stream_decode_seconds_total", LINKED, "Time to make values of messages.", ("peer",)
)

# Engines.
FORWARD_DURATION = _histogram(
    "forward_duration_seconds",
    WORKERS,
    "Batched passes of the model; the sum is the time that it was busy.",
    STEP_TIMES,
)
FORWARD_ROWS = _histogram(
    "forward_rows",
    WORKERS,
    "Token rows of one forward.",
    ROW_COUNTS,
)
FORWARD_BATCH_SIZE = _histogram("forward_batch_size", WORKERS, "Sessions in one forward.", BATCH_SIZES)
SESSIONS = _gauge(
    "sessions",
    WORKERS,
    "Sessions that the worker holds. open: on a stream; leased: their stream has ended and the lease runs.",
    ("state",),
)
PREEMPTIONS = _counter(
    "preemptions_total",
    WORKERS,
    "Times that a session's KV was dropped for another one, to be rebuilt later.",
)
KV_CACHE_USAGE = _gauge(
    "kv_cache_usage_ratio", WORKERS, "KV pages that sessions hold / all KV pages, from 0 to 1."
)
KV_CACHE_PAGES = _gauge("kv_cache_pages", WORKERS, "KV pages of 64 tokens in the pool.")
KV_CACHE_USED_PAGES = _gauge("kv_cache_used_pages", WORKERS, "KV pages that sessions hold.")
KV_CACHE_KEPT_PAGES = _gauge(
    "kv_cache_kept_pages",
    WORKERS,
    "KV pages that nobody holds and whose content a session that begins alike may still take over.",
)
CACHE_QUERIES = _counter(
    "cache_queries_total",
    WORKERS,
    "Tokens that were looked for. prefix: of sessions that began, or began anew after a preemption.",
    ("source",),
)
CACHE_HITS = _counter(
    "cache_hits_total",
    WORKERS,
    "Tokens that were found. prefix: those whose KV was in the pool, so that they were not run again.",
    ("source",),
)
CACHE_EVICTIONS = _counter(
    "cache_evictions_total",
    WORKERS,
    "Entries that had to give way. prefix: pages that were kept.",
    ("source",),
)
MODEL_INFO = Metric(
    "model_info",
    Kind.INFO,
    WORKERS,
    "What is loaded; always 1.",
    (
        *("model_name", "dtype", "device", "exactness", "numerics_id", "weight_fingerprint"),
        *("tokenizer_fingerprint", "model_version"),
    ),
)

# Utilisation: work done, time busy (forward_duration_seconds_sum), and what the device can do.
FORWARD_FLOPS = _counter(
    "forward_flops_total",
    WORKERS,
    "Floating-point operations of the matrix products: 2 x weights x rows, the output "
    "layer for the rows only whose logits are asked for. Attention is left out.",
    MODEL,
)
FORWARD_READ_BYTES = _counter(
    "forward_read_bytes_total",
    WORKERS,
    "Weights and KV that forwards read: each once a forward and sequence.",
    MODEL,
)
PEAK_FLOPS = _gauge(
    "device_peak_flops_per_second",
    WORKERS,
    "The best rate of a large matrix product in the model's element type, measured at the start.",
)
PEAK_BANDWIDTH = _gauge(
    "device_peak_read_bytes_per_second", WORKERS, "The best rate of reading memory, measured at the start."
)
MODEL_UTILIZATION = _gauge(
    "model_utilization_ratio",
    WORKERS,
    "While it was busy, over its last 256 forwards: arithmetic (flops / time / peak) and bandwidth (bytes"
    " / time / peak). For all time, idle or not: rate(forward_flops_total) / "
    "device_peak_flops_per_second, and likewise for bytes.",
    ("resource",),
)
GPU_UTILIZATION = _gauge(
    "gpu_utilization_ratio",
    WORKERS,
    "Share of time that a kernel ran on the GPU, by NVML; absent without.",
    ("gpu",),
)
GPU_MEMORY_USED = _gauge(
    "gpu_memory_used_bytes",
    WORKERS,
    "Memory in use on the GPU by all processes, by NVML; absent without.",
    ("gpu",),
)
GPU_MEMORY = _gauge(
    "gpu_memory_bytes",
    WORKERS,
    "Memory of the GPU, by NVML; absent without.",
    ("gpu",),
)

PEAK_MEMORY = _gauge(
    "process_peak_resident_memory_bytes", ALL, "The most memory that the process has had resident."
)

METRICS: tuple[Metric, ...] = tuple(value for value in globals().values() if isinstance(value, Metric))
STANDARD = (
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
)
"""Names of Prometheus' own convention, which every process exports too (on Linux)."""
ONLY_WITH_GPU = (GPU_UTILIZATION, GPU_MEMORY_USED, GPU_MEMORY)
