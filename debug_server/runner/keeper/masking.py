"""Masks secrets in the stderr of a relayed program, before it is written to disk.

Masking also removes what looks like a secret; redaction (``redaction.py``) removes declared secrets only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

SHORTEST_LINE = 8  # of a line in a value with several lines: a shorter one would match ordinary text
MAX_LINE = 1 << 16  # a longer line is dropped: a part of it could contain a part of a secret
_SHORTEST = 8  # of a variable's value: a shorter one would match ordinary words
REDACTED = b"[redacted]"
_REMOVED = b"[a line of %d bytes was removed: it could contain part of a secret]"
_OWN = b"\0redacted\0"  # stands for REDACTED while credential forms are matched: it cannot end a match early
_SECRET_NAME = re.compile(r"(?i)(^|_)(api_?)?(key|token|secret|password|passwd|credentials?|auth)$")
_CREDENTIAL_FORMS = (
    rb"(?P<named>(?i:api[_-]?key|token|secret|passw(?:or)?d|authorization|credential)s?[\"']?[ \t]*[:=][ \t]*[\"']?)"
    rb"(?!\d+\b)(?:(?i:bearer|basic)[ \t]+)?[^\s\"',;}\]]{6,}",
    rb"(?P<scheme>(?i:\b(?:bearer|basic)[ \t]+))[\w.~+/=-]{8,}",
    rb"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
    rb"\b(?:sk|pk|rk)[-_][\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bAIza[\w-]{30,}|\bxox[a-z]-[\w-]{10,}",
    rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
)
_KNOWN = re.compile(b"|".join(_CREDENTIAL_FORMS))


class Mask:
    """Bytes in, whole lines without secrets out.

    Secrets are the values of variables that are named like a secret, and text that has the form of a credential.
    """

    may_flush = False  # an incomplete line is held until it is completed, however long that takes

    def __init__(self, env: Mapping[str, str], declared: Iterable[str] = ()) -> None:
        values = set(declared) | {
            text for name, text in env.items() if _SECRET_NAME.search(name) and len(text) >= _SHORTEST
        }
        lines = {line for value in values for line in _lines(value.encode("utf-8", "surrogateescape"))}
        self._own = re.compile(b"|".join(map(re.escape, sorted(lines, key=len, reverse=True)))) if lines else None
        self._held = b""  # of an incomplete line
        self._dropped_bytes = 0  # bytes of a line that is too long

    def feed(self, data: bytes) -> bytes:
        """The masked lines that ``data`` completes."""
        *lines, rest = data.split(b"\n")
        if not lines:
            self._hold(rest)
            return b""
        lines[0] = self._complete(lines[0])
        self._hold(rest)
        return self._masked(b"\n".join(lines) + b"\n")

    def end(self) -> bytes:
        """The last line, if it is incomplete."""
        return self._masked(self._complete(b""))

    def flush_held(self) -> bytes:
        """Nothing: an incomplete line is never written after a pause."""
        return b""

    def _masked(self, text: bytes) -> bytes:
        if self._own is not None:  # before the credential forms: one of those may end inside a value
            text = self._own.sub(_OWN, text)
        return _KNOWN.sub(_keeping_names, text).replace(_OWN, REDACTED)

    def _hold(self, piece: bytes) -> None:
        if self._dropped_bytes or len(self._held) + len(piece) > MAX_LINE:
            self._dropped_bytes += len(self._held) + len(piece)
            self._held = b""
        else:
            self._held += piece

    def _complete(self, piece: bytes) -> bytes:
        self._hold(piece)
        line = _REMOVED % self._dropped_bytes if self._dropped_bytes else self._held
        self._held, self._dropped_bytes = b"", 0
        return line


def _lines(value: bytes) -> list[bytes]:
    """The parts of a value that can appear within one line."""
    lines = [line.strip(b"\r") for line in value.split(b"\n")]
    return [line for line in lines if len(line) >= SHORTEST_LINE] if len(lines) > 1 else lines


def _keeping_names(found: re.Match[bytes]) -> bytes:
    return (found["named"] or found["scheme"] or b"") + REDACTED
