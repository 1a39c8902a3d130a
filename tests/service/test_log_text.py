"""A log as text: from an offset, its last lines, the lines that match; bounded, and exact where it is asked for."""

from __future__ import annotations

import asyncio
import base64
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debug_server import messages as m
from debug_server.errors import InvalidInputError
from debug_server.runner.log_format import STDOUT, LogWriter
from debug_server.service import log_text
from debug_server.service.log_text import read_text


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., m.LogText]:
    """Reads a log that holds ``data``."""

    def of(data: bytes, *, sealed: bool = True, **asked: Any) -> m.LogText:
        path = tmp_path / f"log-{random.getrandbits(64)}"
        writer = LogWriter(path)
        writer.write(STDOUT, data)
        if sealed:
            writer.end()
        writer.close()
        return asyncio.run(read_text(asyncio.to_thread, 7, str(path), m.ReadLogText(command_id=7, **asked)))

    return of


LINES = b"".join(b"line %d: gr\xc3\xbc\xc3\x9fe\n" % number for number in range(1, 3001))


@pytest.mark.parametrize("limit", [1, 2, 3, 4001, 1 << 20])
def test_pages_join_to_the_log(read: Callable[..., m.LogText], limit: int) -> None:
    """Whatever the limit, the pages are the log without loss or repetition, and only the last one has ended."""
    data, text, offset = LINES[: 40 * limit], "", 0
    while True:
        page = read(data, offset=offset, limit=limit)
        text, offset = text + page.text, page.next_offset
        assert page.offset + len(page.text.encode()) == page.next_offset or limit == 1
        if page.ended:
            break
    assert offset == len(data)
    assert limit == 1 or text == data.decode("utf-8", "replace")


def test_an_unfinished_log_keeps_a_half_character_for_later(read: Callable[..., m.LogText]) -> None:
    """A character whose second byte is not written yet is left to the next read; in an ended log it is replaced."""
    page = read(b"gr\xc3", sealed=False)
    assert (page.text, page.next_offset, page.exact, page.ended) == ("gr", 2, True, False)
    page = read(b"gr\xc3")
    assert (page.text, page.next_offset, page.exact, page.ended) == ("gr\ufffd", 3, False, True)


def test_bytes_that_are_no_utf8_survive(read: Callable[..., m.LogText]) -> None:
    """Every byte comes back as base64; as text the answer says that it is not exact."""
    data = bytes(range(256)) * 3
    assert not read(data).exact
    page = read(data, encoding="base64", offset=1)
    assert base64.b64decode(page.text) == data[1:] and page.exact
    assert base64.b64decode(read(b"a\nb\xff\n", encoding="base64", tail=1).text) == b"b\xff\n"
    assert not read(b"one\ntwo \xff three\n", grep="two.*three").exact


@pytest.mark.parametrize("count", [1, 2, 17, 3000, 5000])
@pytest.mark.parametrize("data", [LINES, LINES.rstrip(b"\n"), b"\n" * 50, b"", b"x" * 5000, b"a\n\nb"])
def test_the_last_lines(read: Callable[..., m.LogText], data: bytes, count: int) -> None:
    """The last lines are those that `tail -n` prints, and their offset is theirs."""
    page = read(data, tail=count, limit=1 << 20)
    lines = data.removesuffix(b"\n").split(b"\n")[-count:] if data else []
    expected = b"\n".join(lines) + (b"\n" if data.endswith(b"\n") else b"")
    assert page.text.encode() == expected
    assert (page.offset, page.next_offset, page.skipped_bytes) == (len(data) - len(expected), len(data), 0)


def test_the_last_lines_of_a_large_log(read: Callable[..., m.LogText]) -> None:
    """They are found across the blocks in which the log is read backwards."""
    data = LINES * 60  # 3 MB
    page = read(data, tail=100_000, limit=1)
    assert page.offset - page.skipped_bytes == len(data) - len(b"".join(data.splitlines(keepends=True)[-100_000:]))


def test_last_lines_beyond_the_limit_lose_their_beginning_and_say_so(read: Callable[..., m.LogText]) -> None:
    """What fits is the end, from the start of a line or at least of a character; the rest is counted."""
    page = read(LINES, tail=100, limit=50)
    assert page.text == "line 2999: grüße\nline 3000: grüße\n"
    whole = read(LINES, tail=100)
    assert (whole.skipped_bytes, whole.offset) == (0, page.offset - page.skipped_bytes)
    page = read("ü".encode() * 100, tail=1, limit=51)
    assert (page.text, page.skipped_bytes) == ("ü" * 25, 150)


@pytest.mark.parametrize(
    "pattern", [r"line 1\d*7:", r"grü+ße$", r"^line 2[45]\b", r"^$", r"[^\d]\b3000", r"a|line 9\b"]
)
def test_matches_are_those_of_grep(read: Callable[..., m.LogText], pattern: str) -> None:
    """The lines are those that match one by one; the pages of matches join."""
    expected = [line for line in LINES.decode().splitlines() if re.search(pattern, line)]
    found: list[m.LogMatch] = []
    offset = 0
    while True:
        page = read(LINES, grep=pattern, offset=offset, max_matches=400)
        found += page.matches
        if page.ended:
            break
        offset = page.next_offset
    assert [item.text for item in found] == expected
    assert [LINES[item.offset : item.end].decode() for item in found] == expected


def test_a_match_does_not_cross_lines(read: Callable[..., m.LogText]) -> None:
    """Neither white space nor a negated class matches a line's end."""
    assert read(b"one\ntwo\n", grep=r"one\s+two").matches == []
    assert read(b"one\ntwo\n", grep=r"e[^x]t").matches == []
    assert [item.text for item in read(b"One\nTWO\n", grep="two|ONE", ignore_case=True).matches] == ["One", "TWO"]


def test_context_shows_each_line_once(read: Callable[..., m.LogText]) -> None:
    """Matches with the lines around them, in order, are lines of the log without repetition."""
    data = b"".join(b"%d\n" % number for number in range(100))
    page = read(data, grep="^(0|10|12|13|40|99)$", context=3)
    shown = [int(line) for item in page.matches for line in (*item.before, item.text, *item.after)]
    assert shown == [*range(4), *range(7, 17), *range(37, 44), *range(96, 100)]


def test_a_text_that_is_no_pattern_is_told_how_to_write_it(read: Callable[..., m.LogText]) -> None:
    """The pattern that finds the text itself is in the message, and does find it."""
    with pytest.raises(InvalidInputError, match="for the text itself, write ") as refused:
        read(b"a[0]\n", grep="a[")
    wanted = str(refused.value).partition("write ")[2]
    assert [item.text for item in read(b"a[0]\nb\n", grep=wanted).matches] == ["a[0]"]


def test_grep_searches_the_last_lines(read: Callable[..., m.LogText]) -> None:
    """With tail, earlier lines are not searched."""
    assert [item.text for item in read(b"a1\nb\na2\nb\n", grep="a", tail=2).matches] == ["a2"]


def test_a_line_is_searched_as_a_whole(read: Callable[..., m.LogText]) -> None:
    """Lines of up to 32 KiB match from their start to their end, wherever they are in the log."""
    data = b"".join(b"<" + b"x" * size + b">\n" for size in (10, 9000, 32_000, 8190, 8191, 8192, 30_000, 1)) * 9
    page = read(data, grep="^<x+>$", max_matches=1000, limit=1 << 20)
    assert b"".join(data[item.offset : item.end] + b"\n" for item in page.matches) == data


def test_long_lines_are_cut_and_the_limit_bounds_the_answer(read: Callable[..., m.LogText]) -> None:
    """A long line keeps its offsets; matches stop at the limit and continue at the next offset."""
    page = read(b"x" * 300_000 + b"needle\n", grep="needle")
    assert page.matches[0].end == 300_006 and len(page.matches[0].text) < 3000
    page = read(LINES, grep="line", limit=100)
    assert len(page.matches) < 10
    assert read(LINES, grep="line", offset=page.next_offset).matches[0].text == f"line {len(page.matches) + 1}: grüße"


@pytest.mark.parametrize("pattern", ["(", "a{9999}", "(.{900}){900}", r"(a)\1", "(?=a)", "[", "*"])
def test_patterns_that_cannot_be_are_refused(read: Callable[..., m.LogText], pattern: str) -> None:
    """The error has the pattern and the reason."""
    with pytest.raises(InvalidInputError, match=re.escape(repr(pattern))):
        read(b"a\n", grep=pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a|b)*a(a|b){400}", "(x+x+)+y", ".*.*.*.*.*=.*"])
def test_a_hostile_pattern_ends(read: Callable[..., m.LogText], pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns that take others for ever end, at the end of the log or with the offset at which to continue."""
    monkeypatch.setattr(log_text, "SECONDS", 0.0)
    data = b"ab" * 40_000 + b"\n" + b"a" * 40_000 + b"!\n"
    page = read(data, grep=pattern)
    while not page.ended:
        following = read(data, grep=pattern, offset=page.next_offset)
        assert following.next_offset > page.next_offset
        page = following
    assert page.next_offset == len(data)


def test_grep_has_no_base64(read: Callable[..., m.LogText]) -> None:
    """The refusal says how to get the bytes."""
    with pytest.raises(InvalidInputError, match="base64"):
        read(b"a\n", grep="a", encoding="base64")
