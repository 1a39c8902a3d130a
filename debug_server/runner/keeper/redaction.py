"""Takes declared secrets out of a command's output before it reaches the disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from debug_server.runner.keeper.masking import SHORTEST_LINE, Mask
from debug_server.runner.log_format import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REDACTED = b"[redacted]"


def declared(orders: Mapping[str, Any]) -> list[str]:
    """The values of the variables that the command's orders name as secret."""
    return [orders["env"][name] for name in orders["secrets"] if orders["env"].get(name)]


def filters(orders: Mapping[str, Any]) -> dict[int, Mask | Redactor]:
    """For each stream of the log what its bytes go through; none where nothing was declared."""
    streams = [STDERR] if orders["relay"] else [STDOUT, STDERR]
    return {stream: made for stream in streams if (made := made_for(orders)) is not None}


def made_for(orders: Mapping[str, Any]) -> Mask | Redactor | None:
    """What one sequence of bytes goes through on its way to the disk; None where nothing is to be hidden."""
    values = declared(orders)
    if orders["relay"]:
        return Mask(orders["env"], values)
    return Redactor(values) if values else None


def forms(values: Iterable[str]) -> list[bytes]:
    """As a program may print them: whole, with a terminal's ends of lines, and each long line of several."""
    found: set[bytes] = set()
    for value in values:
        data = value.encode("utf-8", "surrogateescape")
        lines = data.split(b"\n")
        found |= {data, b"\r\n".join(lines)}
        if len(lines) > 1:
            found |= {line.strip(b"\r") for line in lines if len(line) >= SHORTEST_LINE}
    return sorted(found, key=len, reverse=True)


class Redactor:
    """Bytes in, the same bytes without secrets out; only what may be the beginning of a secret is held back."""

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = forms(values)
        self._secret = re.compile(b"|".join(map(re.escape, self._forms)))
        self._shown = b""  # given away although it may be the beginning of a secret: the rest is not
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be kept of everything until now, but for a possible beginning of a secret."""
        shown, data = len(self._shown), self._shown + self._held + data
        beginnings = iter(self._beginnings(data))
        hold = next(beginnings, len(data))
        kept, at = [], shown
        for found in self._secret.finditer(data):
            if found.start() >= hold:  # it may be part of a longer one
                break
            if found.end() > at:  # else it was shown as hidden
                kept += [data[at : found.start()], REDACTED]
                at = found.end()
            while hold < found.end():
                hold = next(beginnings, len(data))
        self._shown, self._held = data[hold:shown], data[max(hold, shown) :]
        return b"".join([*kept, data[at:hold]])

    @property
    def waiting(self) -> bool:
        """Whether so little is held that it may be kept when nothing follows for a while.

        Half of a secret or more is held until the next byte decides, or the stream ends.
        """
        begun = self._shown + self._held
        return bool(self._held) and not any(
            2 * len(begun) >= len(form) and form.startswith(begun) for form in self._forms
        )

    def release(self) -> bytes:
        """What is held, although more may follow: of a secret that it begins only the rest is hidden then."""
        shown, self._shown, self._held = len(self._shown), self._shown + self._held, b""
        return self._from(self._shown, shown)

    def end(self) -> bytes:
        """What is held, when nothing follows."""
        shown, data, self._shown, self._held = len(self._shown), self._shown + self._held, b"", b""
        return self._from(data, shown)

    def _from(self, data: bytes, at: int) -> bytes:
        """Of bytes without an unfinished secret, those from ``at`` on."""
        kept = []
        for found in self._secret.finditer(data):
            if found.end() > at:
                kept += [data[at : found.start()], REDACTED]
                at = found.end()
        return b"".join([*kept, data[at:]])

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
