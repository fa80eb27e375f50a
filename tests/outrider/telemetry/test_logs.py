import io
import json
import logging
import warnings

import pytest
import structlog
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from outrider.telemetry import (
    SpanName,
    bind_span,
    configure_logging,
    get_logger,
    trace_id_of,
    tracing_to,
)
from outrider.telemetry.logs import BadLogLevel, log_level


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture(autouse=True)
def _restore_logging(monkeypatch):
    monkeypatch.delenv("OUTRIDER_LOG_LEVEL", raising=False)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_service_level_and_time(stream):
    configure_logging("outrider-draft", stream=stream)
    get_logger("services.draft").info("model loaded", seconds=1.5)
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "model loaded",
        "seconds": 1.5,
        "level": "info",
        "logger": "services.draft",
        "service": "outrider-draft",
    }


def test_the_standard_librarys_lines_look_alike(stream):
    configure_logging("outrider-draft", stream=stream)
    logging.getLogger("grpc").warning("lost %d of %d", 1, 2, extra={"peer": "a"})
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"], line["service"], line["peer"]) == (
        "lost 1 of 2",
        "warning",
        "grpc",
        "outrider-draft",
        "a",
    )


def test_python_warnings_are_lines_too(stream):
    configure_logging("outrider-draft", stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old keyword", FutureWarning, stacklevel=1)
        logging.captureWarnings(capture=False)
    assert "old keyword" in lines(stream)[0]["event"]


def test_an_exception_stays_one_line(stream):
    configure_logging("outrider-draft", stream=stream)
    try:
        [].pop()
    except IndexError:
        get_logger("x").exception("round failed")
    (line,) = lines(stream)
    assert line["exception"][0]["exc_type"] == "IndexError"


def test_the_line_of_an_exception_holds_no_local_variables(stream):
    configure_logging("outrider-gateway", stream=stream)

    def fail(prompt):
        raise ValueError(len(prompt))

    try:
        fail("what nobody may read")
    except ValueError as error:
        get_logger("x").error("failed", exc_info=error)
    assert "what nobody may read" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


def test_a_terminal_gets_a_readable_form():
    terminal = Terminal()
    configure_logging("outrider-draft", stream=terminal)
    get_logger("x").info("model loaded")
    assert "model loaded" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")


def test_lines_carry_the_bound_span(stream):
    configure_logging("outrider-scheduler", stream=stream)
    tracing = tracing_to(SimpleSpanProcessor(InMemorySpanExporter()), "test", "1")
    span = tracing.start_root(SpanName.SESSION)
    bind_span(span)
    get_logger("x").info("reopened")
    assert lines(stream)[0]["trace_id"] == trace_id_of(span)
    assert len(lines(stream)[0]["span_id"]) == 16
    span.end()
    tracing.shutdown()


@pytest.mark.parametrize(
    ("variable", "argument", "shown"),
    [(None, None, 2), ("debug", None, 3), ("ERROR", None, 0), ("error", "warning", 1)],
)
def test_the_level_comes_from_the_variable_or_the_argument(variable, argument, shown, stream, monkeypatch):
    if variable:
        monkeypatch.setenv("OUTRIDER_LOG_LEVEL", variable)
    configure_logging("test", level=argument, stream=stream)
    log = get_logger("x")
    log.debug("a")
    log.info("b")
    log.warning("c")
    assert len(lines(stream)) == shown


def test_a_level_that_does_not_exist_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("OUTRIDER_LOG_LEVEL", "loud")
    with pytest.raises(BadLogLevel, match="OUTRIDER_LOG_LEVEL is 'loud': choose one of debug, info, "):
        log_level()


def test_a_second_call_replaces_the_first(stream):
    configure_logging("one", stream=io.StringIO())
    log = get_logger("x")
    configure_logging("two", stream=stream)
    log.info("hello")
    (line,) = lines(stream)
    assert line["service"] == "two"


def test_what_users_write_is_withheld(stream):
    configure_logging("test", stream=stream)
    get_logger("x").info("request", prompt="my secret", token_ids=[1, 2, 3], text=None, model="smollm2")
    logging.getLogger("y").info("request", extra={"prompt": "my secret"})
    assert "secret" not in stream.getvalue()
    first, _ = lines(stream)
    assert first["prompt"] == "<withheld, length 9>"
    assert first["token_ids"] == "<withheld, length 3>"
    assert first["model"] == "smollm2"
