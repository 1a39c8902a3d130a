"""Configures logs, metrics and traces. Only ``app`` imports this module.

Other modules use the port ``Telemetry`` and the standard library's loggers.
"""

from __future__ import annotations

import json as json_format
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO

from debug_server.errors import ConfigurationError, InvalidInputError
from debug_server.model.extras import install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from prometheus_client.metrics import MetricWrapperBase


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One declared metric."""

    kind: Literal["counter", "gauge", "histogram", "summary"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_LONG = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)  # durations that users wait for
_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)  # overhead of the product
_HTTP_MS = (50, 100, 200, 400, 800, 1200, 2000, 5000, 10000)
_BUFFER = ("output_mode", "reason")
_REQUEST = ("route", "method", "status_family", "model")

_GATEWAY: Mapping[str, Metric] = {
    "codex_http_requests_total": Metric(kind="counter", help="Requests to the gateway.", labels=_REQUEST),
    "codex_http_errors_total": Metric(kind="counter", help="Those of them that failed.", labels=_REQUEST),
    "codex_http_latency_ms": Metric(kind="histogram", help="Their duration.", labels=_REQUEST, buckets=_HTTP_MS),
    "codex_http_latency_summary_ms": Metric(kind="summary", help="The same, count and sum.", labels=_REQUEST),
    "codex_stream_ttfb_ms": Metric(
        kind="histogram", help="Time to the first byte of a stream.", labels=("route", "model"), buckets=_HTTP_MS
    ),
    "codex_stream_duration_ms": Metric(
        kind="histogram", help="From there to its end.", labels=("route", "model"), buckets=_HTTP_MS
    ),
    "codex_stream_end_total": Metric(
        kind="counter", help="Streams that ended, by how.", labels=("route", "model", "outcome")
    ),
    "codex_responses_sse_event_total": Metric(
        kind="counter", help="Events of the Responses API.", labels=("route", "model", "event")
    ),
    "codex_streams_active": Metric(kind="gauge", help="Streams that are open."),
    "codex_tool_buffer_started_total": Metric(kind="counter", help="Turns that called functions.", labels=_BUFFER),
    "codex_tool_buffer_flushed_total": Metric(kind="counter", help="Their calls handed over.", labels=_BUFFER),
    "codex_tool_buffer_aborted_total": Metric(kind="counter", help="Lost with their turn.", labels=_BUFFER),
    "codex_tool_buffer_anomaly": Metric(kind="gauge", help="1 when the last calls were lost."),
    "codex_maintenance_mode": Metric(kind="gauge", help="1 while all work is refused."),
}

_WORKER = ("worker", "instance")

METRICS: Mapping[str, Metric] = {
    "debug_server_commands_started_total": Metric(kind="counter", help="Commands started."),
    "debug_server_commands_ended_total": Metric(kind="counter", help="Commands ended.", labels=("reason",)),
    "debug_server_command_seconds": Metric(kind="histogram", help="Wall time of commands.", buckets=_LONG),
    "debug_server_command_overhead_seconds": Metric(
        kind="histogram", help="Time added to a command's own.", buckets=_SHORT
    ),
    "debug_server_queue_depth": Metric(kind="gauge", help="Commands that wait."),
    "debug_server_queue_wait_seconds": Metric(
        kind="histogram", help="Time from request to start.", buckets=(*_SHORT, 30, 60, 300, 900, 3600)
    ),
    "debug_server_keepers_live": Metric(kind="gauge", help="Keepers that hold a command."),
    "debug_server_log_bytes_total": Metric(kind="counter", help="Bytes written to logs."),
    **_GATEWAY,
    "codex_worker_restarts_total": Metric(kind="counter", help="Restarts of supervised workers.", labels=_WORKER),
    "codex_worker_restarts_inc_total": Metric(
        kind="counter", help="The same, under the name that older dashboards know.", labels=_WORKER
    ),
    "codex_worker_latency_ms": Metric(kind="gauge", help="From a worker's last start to ready.", labels=_WORKER),
    "codex_worker_ready": Metric(kind="gauge", help="1 while a worker takes requests.", labels=_WORKER),
    "codex_worker_backoff_ms": Metric(kind="gauge", help="Wait before a worker's next start.", labels=_WORKER),
}


class NullTelemetry:
    """Measures nothing."""

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        """Do nothing."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Do nothing."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Do nothing."""

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[None]:
        """Do nothing around the section."""
        return nullcontext()

    def render(self) -> str:
        """No metrics."""
        return ""

    def close(self) -> None:
        """Do nothing."""


class PrometheusTelemetry:
    """Keeps the declared metrics in its own registry; spans go to OpenTelemetry if configured."""

    def __init__(self, *, tracing: TracerProvider | None = None) -> None:
        import prometheus_client  # imported late: it is a quarter of the start of `debug-server run`

        self._client = prometheus_client
        self._registry = prometheus_client.CollectorRegistry()
        self._metrics = {name: self._create(name, metric) for name, metric in METRICS.items()}
        self._tracing = tracing
        self._tracer = tracing.get_tracer("debug_server") if tracing else None

    def _create(self, name: str, metric: Metric) -> MetricWrapperBase:
        if metric.kind == "counter":
            return self._client.Counter(name, metric.help, metric.labels, registry=self._registry)
        if metric.kind == "gauge":
            return self._client.Gauge(name, metric.help, metric.labels, registry=self._registry)
        if metric.kind == "summary":
            return self._client.Summary(name, metric.help, metric.labels, registry=self._registry)
        return self._client.Histogram(name, metric.help, metric.labels, buckets=metric.buckets, registry=self._registry)

    def _find(self, kind: str, name: str, labels: Mapping[str, str]) -> Any:
        declared = METRICS.get(name)
        if declared is None or declared.kind != kind or set(labels) != set(declared.labels):
            raise InvalidInputError(f"no {kind} {name!r} with labels {sorted(labels)}: declare it in telemetry.METRICS")
        metric = self._metrics[name]
        return metric.labels(**labels) if labels else metric

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._find("counter", name, labels).inc(value)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._find("gauge", name, labels).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add to a histogram or a summary."""
        kind = "summary" if name in METRICS and METRICS[name].kind == "summary" else "histogram"
        self._find(kind, name, labels).observe(value)

    @contextmanager
    def span(self, name: str, **attributes: Any) -> Iterator[None]:
        """A traced section; errors in it are recorded and raised."""
        if self._tracer is None:
            yield
            return
        with self._tracer.start_as_current_span(name, attributes=_span_attributes(attributes)):
            yield

    def render(self) -> str:
        """All metrics in Prometheus' text format."""
        return self._client.generate_latest(self._registry).decode()

    def close(self) -> None:
        """Send buffered spans."""
        if self._tracing is not None:
            self._tracing.shutdown()


def _span_attributes(attributes: Mapping[str, Any]) -> dict[str, str | bool | int | float]:
    shown = _redacted(attributes)
    return {name: value if isinstance(value, str | bool | int | float) else str(value) for name, value in shown.items()}


def open_telemetry(*, metrics: bool = True) -> PrometheusTelemetry | NullTelemetry:
    """Metrics, unless they are not served, and traces if the environment enables them.

    OTEL_EXPORTER_OTLP_ENDPOINT or DEBUG_SERVER_OTEL=on enables traces; DEBUG_SERVER_OTEL=off overrides. The gateway's
    names for them are PROXY_ENABLE_OTEL and PROXY_OTEL_EXPORTER_URL.
    """
    tracing = _open_tracing() if _tracing_asked() else None
    return PrometheusTelemetry(tracing=tracing) if metrics or tracing else NullTelemetry()


def _tracing_asked() -> bool:
    name = "DEBUG_SERVER_OTEL" if os.environ.get("DEBUG_SERVER_OTEL") else "PROXY_ENABLE_OTEL"
    wish = os.environ.get(name, "").lower()
    if wish not in ("", "on", "off", "1", "0", "true", "false", "yes", "no"):
        raise ConfigurationError(f"variable {name} = {wish!r} must be on or off")
    return wish in ("on", "1", "true", "yes") or (not wish and bool(os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")))


def _open_tracing() -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigurationError(
            f"traces are enabled, but {error.name} is not installed: "
            f"{install_command('otel')}, or set DEBUG_SERVER_OTEL=off"
        ) from error
    service = os.environ.get("OTEL_SERVICE_NAME", "debug-server")
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=os.environ.get("PROXY_OTEL_EXPORTER_URL")))
    )
    return provider


_SECRET_KEYS = ("token", "authorization", "password", "secret", "api_key", "env")
_CONTENT_KEYS = frozenset(  # messages between clients and workers
    {"payload", "body", "headers", "messages", "response", "content", "params", "data", "request"}
)
_MOST_TEXT = 2000
_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error"}
_COLOURS = {"debug": "2", "info": "32", "warn": "33", "error": "31"}
_PLAIN_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def configure_logging(level: str = "INFO", *, json: bool | None = None, stream: TextIO | None = None) -> None:
    """Send the product's records from ``level`` up, and warnings of libraries, to ``stream`` (stderr).

    ``json`` is one JSON object a line, its default unless the stream is a terminal. A second call replaces the first.
    """
    if level.upper() not in _LEVELS:
        raise ConfigurationError(f"log level {level!r} must be one of {', '.join(_LEVELS)}")
    target = sys.stderr if stream is None else stream
    handler = _Handler(target)
    handler.setFormatter(_formatter(json=json, terminal=target.isatty()))
    root = logging.getLogger()
    for old in [item for item in root.handlers if isinstance(item, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(logging.getLevelNamesMapping()[level.upper()], logging.WARNING))
    logging.getLogger("debug_server").setLevel(level.upper())


def _formatter(*, json: bool | None, terminal: bool) -> logging.Formatter:
    if json is None:
        json = not terminal
    return _JsonFormatter() if json else _ConsoleFormatter(colour=terminal and not os.environ.get("NO_COLOR"))


class _Handler(logging.StreamHandler[TextIO]):
    """Our handler: a second configuration replaces it and keeps other handlers."""


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        milliseconds = round(record.created * 1000)
        clock = {"ts": milliseconds / 1000, "ts_ms": milliseconds}
        return json_format.dumps(_fields(record) | clock, default=str)


class _ConsoleFormatter(logging.Formatter):
    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        head = f"{fields.pop('timestamp')} {fields['level']:<5}"
        if self._colour:
            head = f"\x1b[{_COLOURS.get(fields['level'], '0')}m{head}\x1b[0m"
        del fields["level"], fields["logger"]
        trace = fields.pop("exception", None)
        line = " ".join([head, _visible(fields.pop("event")), *(f"{name}={_visible(v)}" for name, v in fields.items())])
        return line if trace is None else f"{line}\n{trace}"


def _visible(value: Any) -> str:
    # A child's bytes may reach a field: control characters must not reach the operator's terminal.
    text = value if isinstance(value, str) else json_format.dumps(value, default=str)
    return text if text.isprintable() and text else json_format.dumps(text)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fixed: dict[str, Any] = {
        "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": _LEVELS.get(record.levelname, record.levelname.lower()),
        "event": record.getMessage(),
        "logger": record.name,
    }
    extra = {name: value for name, value in vars(record).items() if name not in _PLAIN_FIELDS}
    if record.exc_info and record.exc_info[0]:
        fixed["exception"] = logging.Formatter().formatException(record.exc_info)
    return fixed | _redacted(extra) | fixed


def _redacted(fields: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): "[redacted]" if _is_secret(name) else _redacted_value(value) for name, value in fields.items()}


def _redacted_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _redacted(value)
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        return value[:_MOST_TEXT] + "…"
    return [_redacted_value(item) for item in value] if isinstance(value, list | tuple) else value


def _is_secret(name: Any) -> bool:
    plain = str(name).lower().replace("-", "_")
    return plain in _CONTENT_KEYS or any(plain == key or plain.endswith("_" + key) for key in _SECRET_KEYS)
