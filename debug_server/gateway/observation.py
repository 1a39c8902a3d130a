"""What is counted and logged of each request; never a word of what was said in it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from debug_server.gateway.refusals import Refusal
from debug_server.ports import Telemetry
from debug_server.workers.turn_events import TokenUsage

_LOG = logging.getLogger("debug_server.gateway")
UNKNOWN = "unknown"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Observed:
    """One request, from its arrival to its end."""

    def __init__(self, telemetry: Telemetry, *, route: str, method: str, request_id: str) -> None:
        self._telemetry = telemetry
        self._started = time.perf_counter()
        self._first: float | None = None
        self.route = route
        self.method = method if method in _METHODS else "other"  # each makes series that stay
        self.request_id = request_id
        self.model = UNKNOWN
        self.status = 0
        self.code: str | None = None
        self.retryable = False
        self.is_stream = False
        self.usage = TokenUsage()

    def failed(self, refusal: Refusal, error: Exception) -> None:
        """It ends with a refusal; one that nobody expected is logged with its trace."""
        self.code = refusal.code
        self.retryable = refusal.kind.retryable
        if refusal.code == "internal_error":
            _LOG.error(
                "request_failed",
                exc_info=error,
                extra={"component": "http", "req_id": self.request_id, "route": self.route},
            )

    def streaming(self) -> None:
        """Its first piece is about to be sent."""
        self.is_stream = True
        self._first = time.perf_counter()

    def counted_event(self) -> Callable[[str], None]:
        """For the events of the Responses API."""
        return lambda event: self._telemetry.count(
            "codex_responses_sse_event_total", route=self.route, model=self.model, event=event
        )

    def ended(self, state: dict[str, Any]) -> None:
        """Count and log it; ``state`` is of the worker."""
        now = time.perf_counter()
        latency = (now - self._started) * 1000
        labels = {"route": self.route, "method": self.method, "model": self.model}
        family = f"{self.status // 100}xx"
        self._telemetry.count("codex_http_requests_total", 1, status_family=family, **labels)
        if self.status >= 400 or self.code is not None:
            self._telemetry.count("codex_http_errors_total", 1, status_family=family, **labels)
        self._telemetry.observe("codex_http_latency_ms", latency, status_family=family, **labels)
        self._telemetry.observe("codex_http_latency_summary_ms", latency, status_family=family, **labels)
        if self._first is not None:
            where = {"route": self.route, "model": self.model}
            self._telemetry.observe("codex_stream_ttfb_ms", (self._first - self._started) * 1000, **where)
            self._telemetry.observe("codex_stream_duration_ms", (now - self._first) * 1000, **where)
            self._telemetry.count("codex_stream_end_total", 1, outcome=self.code or "ok", **where)
        self._log(latency, state)

    def _log(self, latency: float, state: dict[str, Any]) -> None:
        fields = {
            "component": "http",
            "req_id": self.request_id,
            "route": self.route,
            "method": self.method,
            "model": self.model,
            "status": self.status,
            "latency_ms": round(latency, 3),
            "tokens_prompt": self.usage.prompt,
            "tokens_response": self.usage.completion,
            "mode": "stream" if self.is_stream else "whole",
            **state,
        }
        if self.code is not None:
            fields |= {"error_code": self.code, "retryable": self.retryable}
        _LOG.log(logging.WARNING if self.status >= 500 else logging.INFO, "access_log", extra=fields)
