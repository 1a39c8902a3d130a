"""Redacts declared secrets in a command's output, before it is written to disk.

For the stderr of a relayed program masking (``masking.py``) takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from debug_server.runner.keeper.masking import REDACTED, SHORTEST_LINE, Mask
from debug_server.runner.log_format import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def declared(orders: Mapping[str, Any]) -> list[str]:
    """The values of the variables that the command's orders name as secret."""
    return [orders["env"][name] for name in orders["secrets"] if orders["env"].get(name)]


def filters(orders: Mapping[str, Any]) -> dict[int, Mask | Redactor]:
    """The filter of each log stream; empty if there are no secrets."""
    streams = [STDERR] if orders["relay"] else [STDOUT, STDERR]
    return {stream: made for stream in streams if (made := new_filter(orders)) is not None}


def new_filter(orders: Mapping[str, Any]) -> Mask | Redactor | None:
    """A new filter for one sequence of bytes; None if there are no secrets."""
    values = declared(orders)
    if orders["relay"]:
        return Mask(orders["env"], values)
    return Redactor(values) if values else None


def forms(values: Iterable[str]) -> list[bytes]:
    """The forms in which a program may print them: whole, with terminal line endings, and each long line."""
    found: set[bytes] = set()
    for value in values:
        data = value.encode("utf-8", "surrogateescape")
        lines = data.split(b"\n")
        found |= {data, b"\r\n".join(lines)}
        if len(lines) > 1:
            found |= {line.strip(b"\r") for line in lines if len(line) >= SHORTEST_LINE}
    return sorted(found, key=len, reverse=True)


class Redactor:
    """Bytes in, redacted bytes out; only a possible beginning of a secret is held back."""

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = forms(values)
        self._secret = re.compile(b"|".join(map(re.escape, self._forms)))
        self._shown = b""  # already written, but a possible beginning of a secret: its rest will be redacted
        self._held = b""  # not yet written: a possible beginning of a secret

    def feed(self, data: bytes) -> bytes:
        """The redacted bytes so far, without a possible beginning of a secret."""
        shown, data = len(self._shown), self._shown + self._held + data
        beginnings = iter(self._beginnings(data))
        hold = next(beginnings, len(data))
        kept, at = [], shown
        for found in self._secret.finditer(data):
            if found.start() >= hold:  # it may be part of a longer one
                break
            if found.end() > at:  # otherwise it has already been redacted
                kept += [data[at : found.start()], REDACTED]
                at = found.end()
            while hold < found.end():
                hold = next(beginnings, len(data))
        self._shown, self._held = data[hold:shown], data[max(hold, shown) :]
        return b"".join([*kept, data[at:hold]])

    @property
    def may_flush(self) -> bool:
        """Whether what is held back may be written after a pause: less than half of a secret.

        Half of a secret or more is held until the next byte or the end of the stream.
        """
        begun = self._shown + self._held
        return bool(self._held) and not any(
            2 * len(begun) >= len(form) and form.startswith(begun) for form in self._forms
        )

    def flush_held(self) -> bytes:
        """The held bytes, after a pause: if they begin a secret, only its rest is hidden."""
        shown, self._shown, self._held = len(self._shown), self._shown + self._held, b""
        return self._from(self._shown, shown)

    def end(self) -> bytes:
        """The held bytes, at the end of the stream."""
        shown, data, self._shown, self._held = len(self._shown), self._shown + self._held, b"", b""
        return self._from(data, shown)

    def _from(self, data: bytes, at: int) -> bytes:
        """The redacted bytes from ``at`` on; nothing follows them."""
        kept = []
        for found in self._secret.finditer(data):
            if found.end() > at:
                kept += [data[at : found.start()], REDACTED]
                at = found.end()
        return b"".join([*kept, data[at:]])

    def _beginnings(self, data: bytes) -> list[int]:
        """Offsets in ``data`` where an incomplete secret may begin."""
        found = set()
        for form in self._forms:
            at = data.find(form[:1], max(0, len(data) - len(form) + 1))
            while at >= 0:
                if form.startswith(data[at:]):
                    found.add(at)
                at = data.find(form[:1], at + 1)
        return sorted(found)
