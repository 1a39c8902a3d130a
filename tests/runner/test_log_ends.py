"""The first and the last bytes of the streams of a log."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from debug_server.runner import log_ends
from debug_server.runner.log_ends import Ends, read_ends
from debug_server.runner.log_format import RECORD, STDERR, STDOUT, SYSTEM, LogWriter
from debug_server.runner.log_index import BATCH, LogFiles, LogPosition, Span, next_spans

BOTH = (STDOUT, STDERR)


def written(path: Path, writes: list[tuple[int, bytes]]) -> Path:
    """A sealed log of these writes."""
    writer = LogWriter(path)
    for stream, data in writes:
        writer.write(stream, data)
    writer.end()
    writer.close()
    return path


def bytes_of(writes: list[tuple[int, bytes]], *streams: int) -> bytes:
    """What these streams hold."""
    return b"".join(data for stream, data in writes if stream in streams)


def joined(ends: Ends) -> tuple[bytes, bytes]:
    """Head and tail as bytes."""
    return b"".join(piece.data for piece in ends.head), b"".join(piece.data for piece in ends.tail)


def check(ends: Ends, expected: bytes, keep: int, log: bytes, *, least: int) -> None:
    """Head and tail are the ends of ``expected`` and have at least ``least`` bytes; every other byte is left out."""
    head, tail = joined(ends)
    assert ends.size == len(expected)
    assert expected.startswith(head) and expected.endswith(tail)
    for piece in (*ends.head, *ends.tail):
        assert log[piece.offset : piece.offset + len(piece.data)] == piece.data
    if ends.left_out is None:
        assert head == expected and tail == b""
    else:
        assert least <= len(head) <= keep and least <= len(tail) <= keep
        assert ends.left_out.size == len(expected) - len(head) - len(tail) > 0
        assert ends.left_out.end - ends.left_out.start >= ends.left_out.size


@pytest.mark.parametrize("blocks", [1, log_ends._BLOCKS])
@pytest.mark.parametrize("keep", [0, 1, 7, 1000, 1 << 20])
def test_both_ends_of_each_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, keep: int) -> None:
    """Whatever was written, in whatever order: of a log with more writes than are read at each end, too."""
    monkeypatch.setattr(log_ends, "_BLOCKS", blocks)
    chance = random.Random(keep)
    writes = [(chance.choice((*BOTH, SYSTEM)), chance.randbytes(chance.randrange(1, 40))) for _ in range(2000)]
    path, log = written(tmp_path / "a.log", writes), bytes_of(writes, *BOTH, SYSTEM)
    least = keep - 3 if blocks > 1 else 0  # a character may be cut at the end
    found = read_ends(path, keep, merged=True)
    check(found.stdout, bytes_of(writes, STDOUT), keep, log, least=least)
    check(found.stderr, bytes_of(writes, STDERR), keep, log, least=least)
    check(found.merged, bytes_of(writes, *BOTH), keep, log, least=least)


def test_a_quiet_stream_between_floods_is_whole(tmp_path: Path) -> None:
    """A line on stderr in the middle of a long stdout is found."""
    writes = [(STDOUT, b"x" * 1000)] * 500 + [(STDERR, b"the error\n")] + [(STDOUT, b"y" * 1000)] * 500
    found = read_ends(written(tmp_path / "a.log", writes), 100, merged=False)
    assert joined(found.stderr) == (b"the error\n", b"") and found.stderr.left_out is None
    assert joined(found.stdout) == (b"x" * 100, b"y" * 100)
    assert found.merged.size == 0


def test_what_was_skipped_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stream wrote between the writes that are read counts, and nothing before it looks like the end."""
    monkeypatch.setattr(log_ends, "_BLOCKS", 1)
    writes = [(STDERR, b"first")] + [(STDOUT, b"x")] * 1000 + [(STDERR, b"middle")] + [(STDOUT, b"x")] * 1000
    found = read_ends(written(tmp_path / "a.log", writes), 100, merged=False)
    assert joined(found.stderr) == (b"first", b"")
    assert (found.stderr.size, found.stderr.left_out and found.stderr.left_out.size) == (11, 6)


@pytest.mark.parametrize("known", ["right", "nothing", "wrong"])
def test_known_sizes_are_not_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str) -> None:
    """With the right sizes of the streams a long log is read at its ends alone; with others the answer is the same."""
    monkeypatch.setattr(log_ends, "_BLOCKS", 1)
    chance = random.Random(1)
    writes = [(chance.choice(BOTH), chance.randbytes(chance.randrange(1, 40))) for _ in range(20_000)]
    path = written(tmp_path / "a.log", writes)
    sizes = {stream: len(bytes_of(writes, stream)) for stream in BOTH}
    given = {
        "right": sizes,
        "nothing": dict.fromkeys(BOTH, 0),
        "wrong": {stream: size - 1 for stream, size in sizes.items()},
    }
    read, raw_records = list[int](), LogFiles.raw_records

    def count(files: LogFiles, first: int, number: int) -> bytes:
        read.append(len(raw := raw_records(files, first, number)) // RECORD.size)
        return raw

    with monkeypatch.context() as patched:
        patched.setattr(LogFiles, "raw_records", count)
        found = read_ends(path, 100, merged=True, written=given[known])
    assert found == read_ends(path, 100, merged=True)
    assert found.stdout.size == sizes[STDOUT] and found.merged.size == sum(sizes.values())
    assert (sum(read) < 2_000) is (known == "right")


def test_only_what_is_shown_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long log a few blocks are decoded: both ends, and the one with the only line of stderr."""
    flood = [(STDOUT, b"x" * 9 + b"\n")] * 10_000
    path = written(tmp_path / "a.log", [*flood, (STDERR, b"the error\n"), *flood])
    decoded = list[int]()

    def count(files: LogFiles, position: LogPosition, limit: int, *, live: bool) -> list[Span]:
        decoded.append(len(spans := next_spans(files, position, limit, live=live)))
        return spans

    monkeypatch.setattr(log_ends, "next_spans", count)
    found = read_ends(path, 100, merged=True)
    assert joined(found.stderr) == (b"the error\n", b"") and found.stderr.left_out is None
    assert (found.stdout.size, found.merged.size) == (200_000, 200_010)
    assert 0 < sum(decoded) <= 3 * BATCH


@pytest.mark.parametrize("text", ["ä" * 50, "€" * 50, "🙂" * 50])
@pytest.mark.parametrize("keep", [9, 10, 11, 12])
def test_no_character_is_cut(tmp_path: Path, text: str, keep: int) -> None:
    """Head and tail of text are text."""
    writes = [(STDOUT, text.encode()[start : start + 3]) for start in range(0, len(text.encode()), 3)]
    head, tail = joined(read_ends(written(tmp_path / "a.log", writes), keep, merged=False).stdout)
    assert head.decode() + tail.decode() == text[: len(head.decode() + tail.decode())]


def test_a_log_that_is_gone(tmp_path: Path) -> None:
    """FileNotFoundError, which is the caller's to explain."""
    with pytest.raises(FileNotFoundError):
        read_ends(tmp_path / "none.log", 10, merged=False)
