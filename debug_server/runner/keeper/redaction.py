"""Redacts declared secrets in a command's output, before it is written to disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from debug_server.runner.keeper.masking import Mask
from debug_server.runner.log_format import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REDACTED = b"[redacted]"
_SHORTEST_LINE = 8  # of a line in a value with several lines: a shorter one would match ordinary text


def declared(orders: Mapping[str, Any]) -> list[str]:
    """The values of the variables that the command's orders name as secret."""
    return [orders["env"][name] for name in orders["secrets"] if orders["env"].get(name)]


def filters(orders: Mapping[str, Any]) -> dict[int, Mask | Redactor]:
    """The filter of each log stream; empty if there are no secrets."""
    values = declared(orders)
    if orders["relay"]:
        return {STDERR: Mask(orders["env"], values)}
    return {STDOUT: Redactor(values), STDERR: Redactor(values)} if values else {}


def forms(values: Iterable[str]) -> list[bytes]:
    """The forms in which a program may print them: whole, with terminal line endings, and each long line."""
    found: set[bytes] = set()
    for value in values:
        data = value.encode("utf-8", "surrogateescape")
        lines = data.split(b"\n")
        found |= {data, b"\r\n".join(lines)}
        if len(lines) > 1:
            found |= {line.strip(b"\r") for line in lines if len(line) >= _SHORTEST_LINE}
    return sorted(found, key=len, reverse=True)


class Redactor:
    """Bytes in, redacted bytes out; only a possible beginning of a secret is held back."""

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = forms(values)
        self._secret = re.compile(b"|".join(map(re.escape, self._forms)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The redacted bytes so far, without a possible beginning of a secret."""
        data = self._held + data
        beginnings = iter(self._beginnings(data))
        hold = next(beginnings, len(data))
        kept, at = [], 0
        for found in self._secret.finditer(data):
            if found.start() >= hold:  # it may be part of a longer one
                break
            kept += [data[at : found.start()], REDACTED]
            at = found.end()
            while hold < at:
                hold = next(beginnings, len(data))
        self._held = data[hold:]
        return b"".join([*kept, data[at:hold]])

    @property
    def waiting(self) -> bool:
        """Whether what is held back may be written after a pause: less than half of a secret.

        Half of a secret or more is held until the next byte or the end of the stream.
        """
        return bool(self._held) and not any(
            2 * len(self._held) >= len(form) and form.startswith(self._held) for form in self._forms
        )

    def end(self) -> bytes:
        """The held bytes, at the end of the stream."""
        held, self._held = self._held, b""
        return self.whole(held)

    def whole(self, data: bytes) -> bytes:
        """Redact bytes that nothing follows."""
        return self._secret.sub(REDACTED, data)

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
