"""What is measured, traced and logged, and in which form it leaves."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from debug_server.errors import ConfigurationError, InvalidInputError
from debug_server.ports import Telemetry
from debug_server.telemetry import METRICS, NullTelemetry, PrometheusTelemetry, configure_logging, open_telemetry

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _own_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts without tracing variables and gives the loggers back as it found them."""
    for name in ("DEBUG_SERVER_OTEL", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    loggers = [logging.getLogger(), logging.getLogger("debug_server")]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


def log_lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """The JSON lines in a stream."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


# --- metrics


def test_every_declared_metric_is_rendered() -> None:
    """Counters, gauges and histograms keep what they are given and appear in the text with help and labels."""
    telemetry = PrometheusTelemetry()
    telemetry.count("debug_server_commands_started_total")
    telemetry.count("debug_server_commands_ended_total", reason="timed_out")
    telemetry.count("debug_server_log_bytes_total", 4096)
    telemetry.gauge("debug_server_queue_depth", 3)
    telemetry.observe("debug_server_command_seconds", 0.3)
    text = telemetry.render()
    assert "debug_server_commands_started_total 1.0" in text
    assert 'debug_server_commands_ended_total{reason="timed_out"} 1.0' in text
    assert "debug_server_log_bytes_total 4096.0" in text
    assert "debug_server_queue_depth 3.0" in text
    assert 'debug_server_command_seconds_bucket{le="0.5"} 1.0' in text
    assert all(f"# HELP {name} {metric.help}" in text for name, metric in METRICS.items())


def test_a_metric_that_is_not_declared_is_an_error() -> None:
    """A misspelt name, the wrong kind and wrong labels raise instead of making a new series."""
    telemetry = PrometheusTelemetry()
    with pytest.raises(InvalidInputError, match="no counter 'nonsense'"):
        telemetry.count("nonsense")
    with pytest.raises(InvalidInputError, match="no gauge 'debug_server_log_bytes_total'"):
        telemetry.gauge("debug_server_log_bytes_total", 1)
    with pytest.raises(InvalidInputError, match=r"labels \[\]"):
        telemetry.count("debug_server_commands_ended_total")


def test_two_telemetries_share_nothing() -> None:
    """Two instances in one process have registries of their own."""
    first, second = PrometheusTelemetry(), PrometheusTelemetry()
    first.gauge("debug_server_keepers_live", 5)
    assert "debug_server_keepers_live 5.0" in first.render()
    assert "debug_server_keepers_live 0.0" in second.render()


def test_null_and_prometheus_fit_the_port() -> None:
    """Both implementations can be used through the port, and a span without tracing runs its section."""
    implementations: list[Telemetry] = [NullTelemetry(), PrometheusTelemetry()]
    ran = 0
    for telemetry in implementations:
        telemetry.count("debug_server_commands_started_total")
        telemetry.gauge("debug_server_queue_depth", 1)
        telemetry.observe("debug_server_queue_wait_seconds", 0.1)
        with telemetry.span("section", command_id=1):
            ran += 1
    assert ran == len(implementations)


def test_importing_telemetry_is_cheap() -> None:
    """Neither the Prometheus nor the OpenTelemetry library is imported before it is used."""
    code = (
        "import sys, debug_server.telemetry as t; t.NullTelemetry(); t.configure_logging();"
        "sys.exit(any(name in sys.modules for name in ('prometheus_client', 'opentelemetry')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# --- traces


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """An OTLP collector: its address and the bodies it was sent."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_spans_reach_a_collector(collector: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    """With an endpoint configured, spans arrive with their parents, attributes and errors, and without secrets."""
    trace = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    pytest.importorskip("opentelemetry.sdk")
    address, bodies = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    telemetry = open_telemetry()
    with pytest.raises(ZeroDivisionError), telemetry.span("outer", command_id=7, path=Path("x")):
        with telemetry.span("inner", token="hush-hush"):
            pass
        raise ZeroDivisionError
    telemetry.close()
    resources = [item for body in bodies for item in trace.ExportTraceServiceRequest.FromString(body).resource_spans]
    spans = {span.name: span for item in resources for scope in item.scope_spans for span in scope.spans}
    assert spans["inner"].parent_span_id == spans["outer"].span_id
    outer = {item.key: item.value for item in spans["outer"].attributes}
    assert (outer["command_id"].int_value, outer["path"].string_value) == (7, "x")
    assert [event.name for event in spans["outer"].events] == ["exception"]
    services = {item.value.string_value for item in resources[0].resource.attributes if item.key == "service.name"}
    assert services == {"debug-server"}
    assert not any(b"hush-hush" in body for body in bodies)


def test_tracing_can_be_switched_off_and_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """DEBUG_SERVER_OTEL=off overrules an endpoint, and a word that is neither on nor off is an error."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("DEBUG_SERVER_OTEL", "off")
    with open_telemetry().span("section"):
        pass
    monkeypatch.setenv("DEBUG_SERVER_OTEL", "perhaps")
    with pytest.raises(ConfigurationError, match=r"DEBUG_SERVER_OTEL = 'perhaps' must be on or off"):
        open_telemetry()


def test_tracing_without_its_library_says_what_to_install() -> None:
    """Asked for but not installed: one clear error that names the missing module and both ways out."""
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from debug_server.errors import ConfigurationError\n"
        "from debug_server.telemetry import open_telemetry\n"
        "try: open_telemetry()\n"
        "except ConfigurationError as error: print(error)"
    )
    environ = {**os.environ, "DEBUG_SERVER_OTEL": "on"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, check=True, capture_output=True, text=True
    )
    assert "debug-server[otel]" in done.stdout
    assert "DEBUG_SERVER_OTEL=off" in done.stdout


# --- logs


def test_json_lines_carry_event_and_fields() -> None:
    """A record is one JSON line with time in UTC, level, event, logger and the extra fields."""
    stream = io.StringIO()
    configure_logging("INFO", stream=stream)
    logging.getLogger("debug_server.engine").warning("command.finished", extra={"command_id": 7, "path": Path("a\nb")})
    logging.getLogger("debug_server.engine").debug("hidden")
    (line,) = log_lines(stream)
    assert line.pop("timestamp").endswith("+00:00")
    assert line.pop("ts_ms") == round(line.pop("ts") * 1000)
    expected = {"level": "warn", "event": "command.finished", "logger": "debug_server.engine"}
    assert line == {**expected, "command_id": 7, "path": "a\nb"}


def test_secrets_do_not_reach_the_log() -> None:
    """Values under known secret keys are replaced at any depth and in any spelling; ids of tokens stay."""
    stream = io.StringIO()
    configure_logging(stream=stream)
    fields = {
        "sent": [{"Authorization": "s1", "X-Api-Key": "s2"}],
        "access_token": "s3",
        "env": {"HOME": "s4"},
        "password": "s5",
        "client_secret": "s6",
        "token_id": 12,
        "nested": {("odd", "key"): {"secret": "s7"}},
    }
    logging.getLogger("debug_server").info("api.request", extra=fields)
    (line,) = log_lines(stream)
    assert line["token_id"] == 12
    assert line["sent"] == [{"Authorization": "[redacted]", "X-Api-Key": "[redacted]"}]
    assert not any(f'"s{number}"' in stream.getvalue() for number in range(1, 8))


def test_what_clients_and_workers_say_does_not_reach_the_log() -> None:
    """Fields that hold content are replaced whatever they hold, and long texts are cut."""
    stream = io.StringIO()
    configure_logging(stream=stream)
    names = ("payload", "body", "headers", "messages", "response", "content", "params", "data", "request")
    fields = {name: ["said"] for name in names} | {"reason": "x" * 5000}
    logging.getLogger("debug_server").info("access_log", extra=fields)
    (line,) = log_lines(stream)
    assert {line[name] for name in names} == {"[redacted]"}
    assert len(line["reason"]) == 2001


def test_fields_cannot_forge_the_fixed_ones() -> None:
    """An extra field called `event` or `level` does not replace the record's own."""
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger("debug_server").info("true", extra={"event": "false", "level": "error", "timestamp": 0})
    (line,) = log_lines(stream)
    assert (line["event"], line["level"], line["timestamp"] != 0) == ("true", "info", True)


def test_an_error_is_logged_with_its_traceback_on_one_line() -> None:
    """An exception stays within its JSON line."""
    stream = io.StringIO()
    configure_logging(stream=stream)
    try:
        int("wrong")
    except ValueError:
        logging.getLogger("debug_server").exception("request.failed")
    (line,) = log_lines(stream)
    assert "invalid literal" in line["exception"]


def test_configuring_twice_logs_once() -> None:
    """A second call replaces the first, level included, and leaves other people's handlers alone."""
    foreign = logging.NullHandler()
    logging.getLogger().addHandler(foreign)
    first, second = io.StringIO(), io.StringIO()
    configure_logging("DEBUG", stream=first)
    configure_logging("ERROR", stream=second)
    configure_logging("INFO", stream=second)
    logging.getLogger("debug_server").info("once")
    assert first.getvalue() == ""
    assert [line["event"] for line in log_lines(second)] == ["once"]
    assert foreign in logging.getLogger().handlers


def test_libraries_are_heard_from_warnings_up() -> None:
    """A library's information is left out, its warnings are kept."""
    stream = io.StringIO()
    configure_logging("DEBUG", stream=stream)
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("trouble %d", 5)
    assert [line["event"] for line in log_lines(stream)] == ["trouble 5"]


def test_the_console_form_is_one_readable_line() -> None:
    """Without JSON, a record is a line of words; control characters in a field cannot reach the terminal."""
    stream = io.StringIO()
    configure_logging(json=False, stream=stream)
    logging.getLogger("debug_server").info("command.started", extra={"command_id": 7, "argv": ["a"], "note": "\x1b[2J"})
    text = stream.getvalue()
    assert text.endswith('info  command.started command_id=7 argv=["a"] note="\\u001b[2J"\n')
    assert "\x1b" not in text


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_the_console_form(monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool) -> None:
    """On a terminal the default is the console form, in colour unless NO_COLOR is set."""
    monkeypatch.setenv("NO_COLOR", no_color)
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream:
        configure_logging(stream=stream)
        logging.getLogger("debug_server").error("command.lost")
        text = ""
        while not text.endswith("\n"):  # a line may come in pieces
            text += os.read(leader, 4096).decode()
    os.close(leader)
    assert text.endswith(" command.lost\r\n")
    assert ("\x1b[31m" in text) is coloured


def test_an_unknown_level_is_refused() -> None:
    """A level that does not exist is named together with those that do."""
    with pytest.raises(ConfigurationError, match="'loud' must be one of DEBUG, INFO"):
        configure_logging("loud")


def test_no_field_of_a_log_line_has_a_name_that_logging_keeps() -> None:
    """``logging`` raises KeyError for such a field, but only where that level is logged."""
    kept = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
    wrong = [
        f"{path}:{key.lineno}: {key.value}"
        for path in (ROOT / "debug_server").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant) and key.value in kept
    ]
    assert wrong == []
