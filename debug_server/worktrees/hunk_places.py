"""Finds the places of hunks that git refuses: with wrong line counts, or with no context after the last change.

People's editors and models write such hunks. Each is placed where its old lines are in the file: at the line that its
header names, else at the only place that has them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from debug_server.errors import PatchApplicationError
from debug_server.worktrees.patch_text import old_name

_HEADER = re.compile(rb"@@ -(\d{1,9})(,0)?(?:,\d{1,9})? \+\d{1,9}(?:,\d{1,9})? @@")
_NO_NEWLINE = rb"\ No newline at end of file"
_MAX_FILE = 16 << 20
_MAX_COMPARED = 10_000_000  # lines; the rest of a file of equal lines is not searched
_MAX_PLACES = 5
_COMMON = 100  # a line that is in the file more often says nothing about the place
_NEAR = 200  # lines around the named one that are searched for a similar line
_SHOWN_LINES, _SHOWN_CHARACTERS = 4, 80

ReadFile = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hunk:
    number: int  # 1, 2, 3 within its file
    start: int | None  # the line of the file that its header names, from 1
    inserts: bool  # its header says that it has no old lines
    body: Sequence[bytes]

    @property
    def old(self) -> list[bytes]:
        """The lines that must be in the file."""
        return [line[1:] for line in self.body if line[:1] in (b" ", b"-", b"")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    name: str
    lines: Sequence[bytes]  # without line feeds
    ends_with_newline: bool


def place_hunks(patch: bytes, read: ReadFile) -> bytes:
    """The patch with each hunk at the line where its old lines are, and with the right counts.

    ``read`` returns the content of a file, or None if there is none. A hunk without a place: PatchApplicationError.
    """
    lines = patch.removesuffix(b"\n").split(b"\n")
    placed: list[bytes] = []
    file: _File | None = None
    number, end, drift, index = 0, 0, 0, 0
    while index < len(lines):
        line = lines[index]
        if _starts_file(lines, index):
            file = None if line.startswith(b"diff ") else _open(line, read)
            number, end, drift = 0, 0, 0
        if not line.startswith(b"@@"):
            placed.append(line)
            index += 1
            continue
        number += 1
        following = next((at for at in range(index + 1, len(lines)) if _ends_hunk(lines, at)), len(lines))
        hunk = _read_hunk(line, lines[index + 1 : following], number)
        at = 0 if file is None else _find(file, hunk, after=end)
        placed += _written(hunk, file, at, drift)
        end = at + len(hunk.old)
        drift += sum(line[:1] == b"+" for line in hunk.body) - sum(line[:1] == b"-" for line in hunk.body)
        index = following
    return b"\n".join([*placed, b""])


def _starts_file(lines: Sequence[bytes], index: int) -> bool:
    if lines[index].startswith(b"diff --git "):
        return True
    return lines[index].startswith(b"--- ") and any(line.startswith(b"+++ ") for line in lines[index + 1 : index + 2])


def _ends_hunk(lines: Sequence[bytes], index: int) -> bool:
    line = lines[index]
    if line == b"-- " and index + 3 >= len(lines):  # the signature below a mail
        return True
    return line[:1] not in (b" ", b"+", b"-", b"\\", b"") or _starts_file(lines, index)


def _open(line: bytes, read: ReadFile) -> _File | None:
    """The file of a ``---`` line; None if it is new, or too large."""
    name = old_name(line)
    data = None if name is None else read(name)
    if name is None or data is None or len(data) > _MAX_FILE:
        return None
    return _File(
        name=name,
        lines=data.removesuffix(b"\n").split(b"\n") if data else [],
        ends_with_newline=data.endswith(b"\n"),
    )


def _read_hunk(header: bytes, body: list[bytes], number: int) -> _Hunk:
    while body and not body[-1]:  # blank lines between two hunks
        body = body[:-1]
    named = _HEADER.match(header)
    return _Hunk(
        number=number,
        start=int(named[1]) if named else None,
        inserts=bool(named and named[2]),
        body=body,
    )


def _find(file: _File, hunk: _Hunk, *, after: int) -> int:
    """The index of the file's line where the hunk begins, not before ``after``."""
    old = hunk.old
    if not old:
        if file.lines and not (hunk.inserts and hunk.start is not None and hunk.start <= len(file.lines)):
            raise _refused(file, hunk, "it has no line of the file to find its place by: add the lines around it")
        return hunk.start or 0
    named = None if hunk.start is None else hunk.start - 1
    if named is not None and named >= after and _is_at(file.lines, old, named):
        return named
    places = [place for _, place in zip(range(_MAX_PLACES), _places(file.lines, old, after), strict=False)]
    if len(places) == 1:
        return places[0]
    if places:
        shown = ", ".join(str(place + 1) for place in places)
        raise _refused(file, hunk, f"its lines are at several places (lines {shown}): add the lines around it")
    raise _refused(file, hunk, _describe_missing(file.lines, hunk))


def _is_at(lines: Sequence[bytes], old: Sequence[bytes], place: int) -> bool:
    return lines[place : place + len(old)] == old


def _places(lines: Sequence[bytes], old: Sequence[bytes], after: int) -> Iterator[int]:
    most = min(len(lines) - len(old) + 1, after + _MAX_COMPARED // len(old))
    return (place for place in range(after, most) if lines[place] == old[0] and _is_at(lines, old, place))


def _describe_missing(lines: Sequence[bytes], hunk: _Hunk) -> str:
    """Which lines of the hunk are not there, and the file's lines at the place that has most of them."""
    old = hunk.old
    place = _nearest(lines, hunk)
    there = lines[place : place + len(old)]
    missing = [line for line, other in zip(old, [*there, *[None] * len(old)], strict=False) if line != other]
    if [line.rstrip() for line in old] == [line.rstrip() for line in there]:
        return f"at line {place + 1} the lines differ in the space or the carriage return at their end"
    found = f"the nearest lines, from line {place + 1}, are {_shown(there)}" if there else "the file is shorter"
    return f"the file does not have {_shown(missing)}; {found}"


def _nearest(lines: Sequence[bytes], hunk: _Hunk) -> int:
    places = defaultdict(list)
    for number, line in enumerate(lines):
        places[line].append(number)
    named = (hunk.start or 1) - 1
    votes = Counter(
        place - number
        for number, line in enumerate(hunk.old)
        for place in (places[line] if len(places[line]) <= _COMMON and line.strip() else ())
        if place >= number
    )
    if votes:
        return max(votes, key=lambda place: (votes[place], -abs(place - named)))
    first = max(0, min(named, len(lines)) - _NEAR)
    window = [line.decode("latin-1") for line in lines[first : first + 2 * _NEAR]]
    for number, line in enumerate(hunk.old):
        if line.strip() and (close := get_close_matches(line.decode("latin-1"), window, n=1)):
            return max(0, first + window.index(close[0]) - number)
    return max(0, min(named, len(lines) - 1))


def _shown(lines: Sequence[bytes]) -> str:
    texts = [repr(line.decode(errors="replace"))[: _SHOWN_CHARACTERS + 2] for line in lines[:_SHOWN_LINES]]
    more = [f"{len(lines) - _SHOWN_LINES} more"] if len(lines) > _SHOWN_LINES else []
    return ", ".join([*texts, *more])


def _refused(file: _File, hunk: _Hunk, why: str) -> PatchApplicationError:
    where = f"hunk {hunk.number}" if hunk.start is None else f"hunk {hunk.number}, line {hunk.start}"
    return PatchApplicationError(f"the patch does not apply to {file.name} ({where}): {why}")


def _written(hunk: _Hunk, file: _File | None, place: int, drift: int) -> Iterator[bytes]:
    """The hunk's lines with a header that counts them."""
    old = len(hunk.old)
    new = sum(line[:1] in (b" ", b"+", b"") for line in hunk.body)
    before, after = (place + (old > 0), place + drift + (new > 0))
    yield b"@@ -%d,%d +%d,%d @@" % (before, old, after, new)
    for index, line in enumerate(hunk.body):
        yield line or b" "
        if line[:1] in (b" ", b"-", b""):
            place += 1
            marked = hunk.body[index + 1 : index + 2] == [_NO_NEWLINE]
            last = file is not None and place == len(file.lines) and not file.ends_with_newline
            if last and not marked:
                yield _NO_NEWLINE
