"""The tokens of each request: kept for ``/v1/usage`` and, if configured, in a file."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from debug_server.gateway.api_errors import ApiError
from debug_server.workers import TokenUsage

MAX_ENTRIES = 10_000
_GROUPS = {"hour": 3600, "day": 86_400}
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """One request's tokens."""

    ts: float
    req_id: str
    route: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class UsageLog:
    """The tokens of the last requests, newest last."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._writer = ThreadPoolExecutor(1, "ds-usage") if path is not None else None
        self._entries: deque[Used] = deque(_read(path) if path is not None else (), MAX_ENTRIES)

    def add(self, *, req_id: str, route: str, model: str, usage: TokenUsage) -> None:
        """Add a request."""
        used = Used(
            ts=time.time(),
            req_id=req_id,
            route=route,
            model=model,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            total_tokens=usage.total,
        )
        self._entries.append(used)
        if self._writer is not None:
            asyncio.get_running_loop().run_in_executor(self._writer, self._append, used)

    def _append(self, used: Used) -> None:
        assert self._path is not None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(used)) + "\n")
        except OSError as error:
            _LOG.warning("usage_not_written", extra={"component": "usage", "error": error.strerror})

    def close(self) -> None:
        """Write the entries that are not in the file yet."""
        if self._writer is not None:
            self._writer.shutdown()

    def raw(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The last ``limit`` requests, for ``/v1/usage/raw``."""
        limit = _whole_number(query, "limit", 200)
        if not 1 <= limit <= MAX_ENTRIES:
            raise ApiError("invalid_request_error", f"limit: must be 1 to {MAX_ENTRIES}, not {limit}", param="limit")
        entries = list(self._entries)[-limit:]
        return {"object": "list", "count": len(entries), "data": [asdict(item) for item in entries]}

    def summary(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Sums from ``start`` to ``end``, grouped by hour or day if asked, for ``/v1/usage``."""
        start, end = _moment(query, "start", 0.0), _moment(query, "end", float("inf"))
        group = query.get("group")
        if group is not None and group not in _GROUPS:
            raise ApiError("invalid_request_error", f"group: must be hour or day, not {group!r}", param="group")
        chosen = [item for item in self._entries if start <= item.ts < end]
        found: dict[str, Any] = {"object": "usage", "group": group, "total": _sum(chosen)}
        if group is not None:
            found["data"] = _grouped(chosen, _GROUPS[group])
        return found


def _grouped(entries: list[Used], seconds: int) -> list[dict[str, Any]]:
    groups: dict[int, list[Used]] = {}
    for item in entries:
        groups.setdefault(int(item.ts) // seconds * seconds, []).append(item)
    return [
        {"ts": ts, "start": datetime.fromtimestamp(ts, UTC).isoformat(), **_sum(groups[ts])} for ts in sorted(groups)
    ]


def _sum(entries: list[Used]) -> dict[str, int]:
    return {
        "requests": len(entries),
        "prompt_tokens": sum(item.prompt_tokens for item in entries),
        "completion_tokens": sum(item.completion_tokens for item in entries),
        "total_tokens": sum(item.total_tokens for item in entries),
    }


def _whole_number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ApiError("invalid_request_error", f"{name}: must be a whole number, not {text[:80]!r}", param=name)
    return int(text)


def _moment(query: Mapping[str, str], name: str, default: float) -> float:
    text = query.get(name)
    if not text:
        return default
    try:
        return float(text) if text.replace(".", "", 1).isdigit() else _utc(datetime.fromisoformat(text)).timestamp()
    except (ValueError, OverflowError) as error:
        message = f"{name}: must be seconds since 1970 or an ISO time, not {text[:80]!r}"
        raise ApiError("invalid_request_error", message, param=name) from error


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _read(path: Path) -> list[Used]:
    """The entries of earlier servers; an incomplete last line is ignored."""
    found = []
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in deque(file, MAX_ENTRIES):
                try:
                    found.append(Used(**json.loads(line)))
                except (ValueError, TypeError):
                    continue
    return found
