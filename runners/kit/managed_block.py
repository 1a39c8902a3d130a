"""A block of a text file that a program manages; the text around it is kept."""

from __future__ import annotations

from runners.kit.errors import JobError


def with_block(text: str, body: list[str], *, begin: str, end: str) -> str:
    """``text`` with the lines between ``begin`` and ``end`` replaced, or with the block appended."""
    lines = text.removesuffix("\n").split("\n") if text else []  # carriage returns are kept
    starts = [number for number, line in enumerate(lines) if line.strip() == begin]
    ends = [number for number, line in enumerate(lines) if line.strip() == end]
    block = [begin, *body, end]
    if not starts and not ends:
        blank = [""] if lines and lines[-1].strip() else []
        return "\n".join([*lines, *blank, *block]) + "\n"
    if len(starts) != 1 or len(ends) != 1 or ends[0] < starts[0]:
        raise JobError(f"the lines {begin!r} and {end!r} must appear once each and in this order: repair them by hand")
    return "\n".join([*lines[: starts[0]], *block, *lines[ends[0] + 1 :]]) + "\n"


def content(text: str, *, begin: str, end: str) -> list[str]:
    """The lines between ``begin`` and ``end``; empty if there is no block."""
    lines = [line.strip() for line in text.split("\n")]
    if begin not in lines or end not in lines[lines.index(begin) :]:
        return []
    start = lines.index(begin)
    return lines[start + 1 : lines.index(end, start)]
