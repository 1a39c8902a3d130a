"""Logs each message to and from the worker in a file: direction, method, id and size, never its content."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LOG = logging.getLogger(__name__)


class ProtocolLog:
    """Appends lines of JSON; a file that cannot be written is reported once and not used again."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._broken = False

    def note(self, direction: str, message: Mapping[str, Any], size: int) -> None:
        """Log one message."""
        if self._broken or self._file.closed:  # the worker ends after the gateway
            return
        kind = "answer"
        if "method" in message:
            kind = "request" if "id" in message else "notification"
        line = {
            "ts": round(time.time(), 3),
            "direction": direction,
            "kind": kind,
            "method": message.get("method"),
            "id": message.get("id"),
            "error": (message.get("error") or {}).get("code") if isinstance(message.get("error"), dict) else None,
            "bytes": size,
        }
        try:
            self._file.write(json.dumps(line) + "\n")
        except OSError as error:
            self._broken = True
            _LOG.warning("protocol_log_failed", extra={"component": "json_rpc", "error": error.strerror})

    def close(self) -> None:
        """Close the file."""
        self._file.close()
