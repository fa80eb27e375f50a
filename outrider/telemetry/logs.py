"""Structured logs on standard error: JSON lines, readable on a terminal, never with a prompt in them."""

import logging
import os
import sys
from typing import TextIO

import structlog
from opentelemetry.trace import Span
from structlog.typing import EventDict, Processor, WrappedLogger

LOG_LEVEL_VARIABLE = "OUTRIDER_LOG_LEVEL"
LEVELS = ("debug", "info", "warning", "error", "critical")

# Fields that could carry what a user wrote or was answered.
TEXT_FIELDS = frozenset(
    ("prompt", "messages", "content", "text", "token_ids", "tokens", "committed_ids", "completion")
)

# Without the local variables of each frame: prompts are among them.
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


class BadLogLevel(ValueError):
    """A level that does not exist."""


def log_level(name: str | None = None) -> int:
    """The level of that name, or of OUTRIDER_LOG_LEVEL, or "info"; raises BadLogLevel."""
    wanted = (name or os.environ.get(LOG_LEVEL_VARIABLE) or "info").strip().lower()
    if wanted not in LEVELS:
        raise BadLogLevel(f"{LOG_LEVEL_VARIABLE} is {wanted!r}: choose one of {', '.join(LEVELS)}")
    return logging.getLevelNamesMapping()[wanted.upper()]


def withhold_text(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replace fields that could hold a user's text by their length."""
    for key in TEXT_FIELDS & event.keys():
        value = event[key]
        event[key] = f"<withheld, length {len(value)}>" if hasattr(value, "__len__") else "<withheld>"
    return event


def bind_span(span: Span) -> None:
    """From here on the log lines of this task carry the span's trace id and span id."""
    context = span.get_span_context()
    if context.is_valid:
        structlog.contextvars.bind_contextvars(
            trace_id=f"{context.trace_id:032x}", span_id=f"{context.span_id:016x}"
        )


def configure_logging(service_name: str, *, level: str | None = None, stream: TextIO | None = None) -> None:
    """Set up the process's logging, the standard library's included; a second call replaces the first.

    `level` overrules OUTRIDER_LOG_LEVEL. Raises BadLogLevel.
    """
    threshold = log_level(level)
    target = sys.stderr if stream is None else stream

    def add_service(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["service"] = service_name
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        add_service,
        withhold_text,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # a later call must reach loggers that exist already
    )
    renderers: list[Processor] = (
        # Plain tracebacks: the pretty ones print local variables, prompts among them.
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if target.isatty()
        else [_TRACEBACKS, structlog.processors.JSONRenderer(default=str)]
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    logging.captureWarnings(capture=True)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module; ask for it with `__name__`."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger
