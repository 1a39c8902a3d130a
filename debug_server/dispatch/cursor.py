"""A place in the stream: the last stored event that was told, and how far into the log of each running command.

1234            everything up to event 1234
1234-1          of event 1234 one entry of several
1234;56:10:20   and of command 56 the lines of stdout before byte 10 and of stderr before byte 20
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from debug_server.errors import InvalidInputError

_CURSOR = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,2}))?((?:;[0-9]{1,18}:[0-9]{1,18}:[0-9]{1,18}){0,1000})")

Offsets = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where to go on."""

    seq: int = 0
    told: int = 0  # entries of the event ``seq``; 0: all of them
    tails: Mapping[int, Offsets] = field(default_factory=dict)

    def __str__(self) -> str:
        place = f"{self.seq}-{self.told}" if self.told else str(self.seq)
        return ";".join([place, *(f"{number}:{out}:{err}" for number, (out, err) in sorted(self.tails.items()))])

    @property
    def after(self) -> int:
        """The last event that need not be read again."""
        return self.seq - 1 if self.told else self.seq


def parse_cursor(text: str) -> Cursor:
    """The cursor of an entry; an empty one is the beginning."""
    if not text:
        return Cursor()
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidInputError(f"cursor {text[:60]!r} is none of ours: send that of the last event you saw, or none")
    tails = {}
    for part in found[3].split(";")[1:]:
        number, out, err = map(int, part.split(":"))
        tails[number] = (out, err)
    return Cursor(seq=int(found[1]), told=int(found[2] or 0), tails=tails)
