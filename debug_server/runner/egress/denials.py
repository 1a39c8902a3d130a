"""Denials: why a target was refused, and their reports at a bounded rate."""

from __future__ import annotations

import time
from collections.abc import Callable

from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.loop import Loop, sleep
from debug_server.runner.egress.names import Address, Host, format_authority

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from debug_server.runner.egress.loop import Steps

Report = Callable[[dict[str, "Any"]], None]
_MAX_HOST = 255


class Denied(Exception):
    """The policy does not allow a target. ``allow`` is the line that would, None if no line can."""

    def __init__(
        self, host: Host, port: int, why: str, *, address: Address | None = None, allow: str | None = None
    ) -> None:
        super().__init__(f"{format_authority(host, port)} is denied: {why}")
        self.host, self.port, self.why, self.address, self.allow = host, port, why, address, allow

    @property
    def advice(self) -> str:
        """What a person does about it, as a sentence."""
        return f'{self}\nThis line would allow it: network.allow = ["{self.allow}"]' if self.allow else str(self)


class Denials:
    """Reports each new denial at once and repeated ones with a count, never more than the bounds say."""

    def __init__(self, loop: Loop, report: Report, bounds: Bounds) -> None:
        self._loop, self._report = loop, report
        self._flushing = False
        self._budget = float(bounds.reports)
        self._most, self._kinds = bounds.reports, bounds.report_kinds
        self._filled = time.monotonic()
        self._waiting: dict[tuple[object, ...], dict[str, Any]] = {}

    def add(self, denied: Denied, peer: str) -> None:
        """Report it now, or count it for later."""
        address = None if denied.address is None else str(denied.address)
        key = (str(denied.host), denied.port, address, denied.why)
        if (event := self._waiting.get(key)) is not None:
            event["count"] += 1
            return
        if len(self._waiting) >= self._kinds:
            other = {"event": "egress_denied", "host": "", "port": 0, "address": None, "why": "more targets"}
            self._waiting.setdefault((), {**other, "peer": "", "count": 0})["count"] += 1
            return
        self._waiting[key] = {
            "event": "egress_denied",
            "host": str(denied.host)[:_MAX_HOST],
            "port": denied.port,
            "address": address,
            "why": denied.why,
            "peer": peer,
            "count": 1,
        }
        self._send_some()
        if self._waiting and not self._flushing:
            self._loop.start(self._flush_slowly())

    def _flush_slowly(self) -> Steps[None]:
        self._flushing = True
        while self._waiting:
            yield from sleep(1.0)
            self._send_some()
        self._flushing = False

    def flush(self) -> None:
        """Report all that waits, at the end."""
        while self._waiting:
            self._report(self._waiting.pop(next(iter(self._waiting))))

    def _send_some(self) -> None:
        now = time.monotonic()
        self._budget = min(self._most, self._budget + now - self._filled)
        self._filled = now
        while self._waiting and self._budget >= 1:
            self._budget -= 1
            self._report(self._waiting.pop(next(iter(self._waiting))))
