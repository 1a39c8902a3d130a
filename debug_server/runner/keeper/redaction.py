"""Takes declared secrets out of a command's output before it reaches the disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from debug_server.runner.keeper.masking import Mask
from debug_server.runner.log_format import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REDACTED = b"[redacted]"
_SHORTEST_LINE = 8  # of a value of several lines: a shorter one is found in any text


def declared(orders: Mapping[str, Any]) -> list[str]:
    """The values of the variables that the command's orders name as secret."""
    return [orders["env"][name] for name in orders["secrets"] if orders["env"].get(name)]


def filters(orders: Mapping[str, Any]) -> dict[int, Mask | Redactor]:
    """For each stream of the log what its bytes go through; none where nothing was declared."""
    values = declared(orders)
    if orders["relay"]:
        return {STDERR: Mask(orders["env"], values)}
    return {STDOUT: Redactor(values), STDERR: Redactor(values)} if values else {}


def forms(values: Iterable[str]) -> list[bytes]:
    """As a program may print them: whole, with a terminal's ends of lines, and each long line of several."""
    found: set[bytes] = set()
    for value in values:
        data = value.encode("utf-8", "surrogateescape")
        lines = data.split(b"\n")
        found |= {data, b"\r\n".join(lines)}
        if len(lines) > 1:
            found |= {line.strip(b"\r") for line in lines if len(line) >= _SHORTEST_LINE}
    return sorted(found, key=len, reverse=True)


class Redactor:
    """Bytes in, the same bytes without secrets out; only what may be the beginning of a secret is held back."""

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = forms(values)
        self._secret = re.compile(b"|".join(map(re.escape, self._forms)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be kept of everything until now, but for a possible beginning of a secret."""
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
        """Whether so little is held that it may be kept when nothing follows for a while.

        Half of a secret or more is held until the next byte decides, or the stream ends.
        """
        return bool(self._held) and not any(
            2 * len(self._held) >= len(form) and form.startswith(self._held) for form in self._forms
        )

    def end(self) -> bytes:
        """What is held."""
        held, self._held = self._held, b""
        return self.whole(held)

    def whole(self, data: bytes) -> bytes:
        """The same for bytes that nothing follows."""
        return self._secret.sub(REDACTED, data)

    def _beginnings(self, data: bytes) -> list[int]:
        """Where in ``data`` a secret may begin that is not complete."""
        found = set()
        for form in self._forms:
            at = data.find(form[:1], max(0, len(data) - len(form) + 1))
            while at >= 0:
                if form.startswith(data[at:]):
                    found.add(at)
                at = data.find(form[:1], at + 1)
        return sorted(found)
