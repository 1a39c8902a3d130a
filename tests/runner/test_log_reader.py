"""The log read back: any bytes, any offset, any read size, any damage to the index."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debug_server.errors import InvalidInputError, NotFoundError
from debug_server.runner.log_format import END, RECORD, STDERR, STDOUT, STREAM_NAMES, SYSTEM, LogWriter, index_path
from debug_server.runner.log_reader import LogCursor, LogReader, LogSegment, repair_index, seal_log

Writes = list[tuple[int, bytes]]

WRITES = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR, SYSTEM]), st.binary(max_size=300)), max_size=30)
RECORDS = st.lists(
    st.builds(
        RECORD.pack,
        st.one_of(st.integers(0, 600), st.integers(0, (1 << 64) - 1)),
        st.one_of(st.integers(0, 300), st.integers(0, (1 << 32) - 1)),
        st.sampled_from([STDOUT, STDERR, SYSTEM, END, 0, 77]),
        st.integers(0, (1 << 64) - 1),
    ),
    max_size=20,
).map(b"".join)
MANY_WRITES: Writes = [((STDOUT, STDERR, SYSTEM)[n % 3], b"%d\0\xff" % n) for n in range(1500)]


def write(path: Path, writes: Writes, *, end: bool = True) -> None:
    writer = LogWriter(path)
    for stream, data in writes:
        writer.write(stream, data)
    if end:
        writer.end()
    writer.close()


def marked(writes: Writes) -> list[tuple[str, int]]:
    """Each byte with its stream."""
    return [(STREAM_NAMES[stream], byte) for stream, data in writes for byte in data]


def marked_segments(segments: Iterable[LogSegment]) -> list[tuple[str, int]]:
    return [(segment.stream, byte) for segment in segments for byte in segment.data]


def joined(segments: Iterable[LogSegment]) -> bytes:
    return b"".join(segment.data for segment in segments)


def drain(cursor: LogCursor, limit: int) -> list[LogSegment]:
    found = []
    while segments := cursor.read(limit):
        assert sum(len(segment.data) for segment in segments) <= limit
        found += segments
    return found


def read_live(path: Path, offset: int, limit: int) -> list[LogSegment]:
    """What a cursor finds in a sealed log."""
    with contextlib.closing(LogCursor(path, offset)) as cursor:
        found = drain(cursor, limit)
        cursor.read(limit)
        assert cursor.ended
    return found


@settings(max_examples=60, deadline=None)
@given(writes=WRITES, data=st.data())
def test_every_byte_comes_back_from_every_offset(writes: Writes, data: st.DataObject) -> None:
    """Any writes on three streams are read back exactly, from any offset, in reads of any size."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.log"
        write(path, writes)
        expected = marked(writes)
        offset = data.draw(st.integers(0, len(expected) + 3))
        limit = data.draw(st.integers(1, 400))
        assert marked_segments(read_live(path, offset, limit)) == expected[offset:]
        with LogReader(path) as reader:
            assert marked_segments(reader.segments(offset)) == expected[offset:]
            assert marked_segments(reader.read(offset, limit)) == expected[offset : offset + limit]
            assert reader.ended()


def test_each_offset_of_a_long_index_is_found(tmp_path: Path) -> None:
    """The binary search lands on the right record for every offset of a log with many records."""
    path = tmp_path / "a.log"
    write(path, MANY_WRITES)
    expected = marked(MANY_WRITES)
    with LogReader(path) as reader:
        for offset in range(0, len(expected), 7):
            assert marked_segments(reader.read(offset, 5)) == expected[offset : offset + 5]


def test_segments_carry_time_and_offset(tmp_path: Path) -> None:
    """Times are of the write, in order, and offsets are where the bytes lie in the file."""
    path = tmp_path / "a.log"
    write(path, MANY_WRITES[:50])
    with LogReader(path) as reader:
        segments = list(reader.segments())
    raw = path.read_bytes()
    assert all(raw[s.offset : s.end] == s.data for s in segments)
    assert [s.time_ns for s in segments] == sorted(s.time_ns for s in segments)


def test_stream_bytes_and_tail(tmp_path: Path) -> None:
    """One stream's bytes, the last bytes and the last lines are read without the rest."""
    path = tmp_path / "a.log"
    write(path, [(STDOUT, b"one\ntw"), (STDERR, b"oops\n"), (STDOUT, b"o\nlast")])
    with LogReader(path) as reader:
        assert b"".join(reader.stream_bytes("stdout")) == b"one\ntwo\nlast"
        assert reader.tail(5) == b"\nlast"
        assert reader.tail(1000) == path.read_bytes()
        assert reader.tail_lines(2) == [b"o", b"last"]
        assert reader.tail_lines(99) == [b"one", b"twoops", b"o", b"last"]
        assert reader.tail_lines(0) == []
        with pytest.raises(InvalidInputError, match="stdin"):
            reader.stream_bytes("stdin")


def test_tail_lines_of_a_large_log(tmp_path: Path) -> None:
    """Long lines are found by looking further back, and one endless line is cut at a mebibyte."""
    path = tmp_path / "a.log"
    write(path, [(STDOUT, b"x" * 50_000 + b"\n") for _ in range(4)])
    with LogReader(path) as reader:
        assert reader.tail_lines(3) == [b"x" * 50_000] * 3
    endless = tmp_path / "b.log"
    write(endless, [(STDOUT, b"y" * 3_000_000)])
    with LogReader(endless) as reader:
        assert len(reader.tail_lines(1)[0]) <= 2 << 20


def _cut(index: Path) -> None:
    os.truncate(index, index.stat().st_size - 30)


def _garbage(index: Path) -> None:
    index.write_bytes(bytes(range(7, 251)) * 9)


def _zero_tail(index: Path) -> None:
    raw = index.read_bytes()
    index.write_bytes(raw[: len(raw) // 2] + b"\0" * (len(raw) // 2))


def _wild_record(index: Path) -> None:
    raw = bytearray(index.read_bytes())
    RECORD.pack_into(raw, RECORD.size * 20, 3000, 1 << 31, STDERR, 1)
    index.write_bytes(raw)


def _early_record(index: Path) -> None:
    raw = bytearray(index.read_bytes())
    RECORD.pack_into(raw, RECORD.size * 20, 0, 1 << 31, STDERR, 1)
    index.write_bytes(raw)


def _hole(index: Path) -> None:
    raw = index.read_bytes()
    index.write_bytes(raw[: RECORD.size * 20] + raw[RECORD.size * 30 :])


DAMAGES = [Path.unlink, _cut, _garbage, _zero_tail, _wild_record, _early_record, _hole]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage.__name__))
def test_a_damaged_index_never_costs_a_byte(tmp_path: Path, damage: object) -> None:
    """Missing, torn, garbage, zeroed, disordered, holed: each byte is read once, before and after the repair."""
    path = tmp_path / "a.log"
    write(path, MANY_WRITES)
    raw = path.read_bytes()
    assert callable(damage)
    damage(Path(index_path(path)))
    with LogReader(path) as reader:
        for offset in (0, 1, 50, 137, 4000, len(raw) - 1):
            assert joined(reader.segments(offset)) == raw[offset:]
    assert repair_index(path)
    assert not repair_index(path), "a repaired index is sound"
    seal_log(path)
    assert joined(read_live(path, 0, 999)) == raw
    assert sorted(os.listdir(tmp_path)) == ["a.log", "a.log.idx"]


@settings(max_examples=60, deadline=None)
@given(
    writes=WRITES,
    index=st.one_of(st.binary(max_size=400), RECORDS),
    offset=st.integers(0, 500),
    cut=st.integers(0, 500),
)
def test_any_index_over_any_log_reads_exactly(writes: Writes, index: bytes, offset: int, cut: int) -> None:
    """Whatever bytes the index holds, and however short the log became, reading gives the log's bytes."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.log"
        write(path, writes)
        os.truncate(path, min(cut, path.stat().st_size))
        Path(index_path(path)).write_bytes(index)
        raw = path.read_bytes()
        with LogReader(path) as reader:
            assert joined(reader.segments(offset)) == raw[offset:]
        seal_log(path)
        assert joined(read_live(path, offset, 64)) == raw[offset:]
        repair_index(path)
        seal_log(path)
        assert joined(read_live(path, offset, 64)) == raw[offset:]


def test_what_a_repair_keeps(tmp_path: Path) -> None:
    """Records that are still good keep their stream; the bytes of those that are gone become stdout."""
    path = tmp_path / "a.log"
    write(path, [(STDERR, b"aaa"), (STDERR, b"bbb"), (SYSTEM, b"ccc")])
    index = Path(index_path(path))
    raw = index.read_bytes()
    index.write_bytes(raw[: RECORD.size] + raw[RECORD.size * 2 : -5])
    repair_index(path)
    with LogReader(path) as reader:
        assert [(s.stream, s.data) for s in reader.segments()] == [
            ("stderr", b"aaa"),
            ("stdout", b"bbb"),
            ("system", b"ccc"),
        ]
        assert not reader.ended()


def test_a_truncated_log_ends(tmp_path: Path) -> None:
    """A sealed log that lost its last bytes is read to where it is, and ends there."""
    path = tmp_path / "a.log"
    write(path, MANY_WRITES)
    os.truncate(path, 1000)
    assert len(joined(read_live(path, 0, 4096))) == 1000


def test_a_killed_writer_leaves_no_trap(tmp_path: Path) -> None:
    """A record without bytes, and one with half of them, read as what is there; sealing releases the rest."""
    path = tmp_path / "a.log"
    write(path, [(STDOUT, b"done"), (STDERR, b"halfwritten")], end=False)
    os.truncate(path, 8)
    cursor = LogCursor(path)
    assert joined(cursor.read()) == b"done", "half a write is not shown while its writer may take it back"
    assert cursor.read() == []
    with LogReader(path) as reader:
        assert marked_segments(reader.segments()) == marked([(STDOUT, b"done"), (STDERR, b"half")])
    assert seal_log(path)
    assert not seal_log(path)
    assert marked_segments(cursor.read()) == marked([(STDERR, b"half")])
    assert cursor.read() == []
    assert cursor.ended


def test_a_successor_continues_a_killed_writers_log(tmp_path: Path) -> None:
    """A new writer after half a write goes on at the log's end, and both parts keep their streams."""
    path = tmp_path / "a.log"
    write(path, [(STDERR, b"halfwritten")], end=False)
    os.truncate(path, 4)
    write(path, [(STDOUT, b"next")])
    assert marked_segments(read_live(path, 0, 100)) == marked([(STDERR, b"half"), (STDOUT, b"next")])


def test_a_cursor_survives_a_repair(tmp_path: Path) -> None:
    """A repair replaces the index under an open cursor, which goes on with the right streams."""
    path = tmp_path / "a.log"
    write(path, [(STDERR, b"abc"), (STDERR, b"abc")], end=False)
    with Path(index_path(path)).open("r+b") as index:
        index.write(b"\xff" * RECORD.size)
    cursor = LogCursor(path)
    assert joined(cursor.read()) == b"abcabc"
    assert repair_index(path)
    write(path, [(STDERR, b"def")])
    assert marked_segments(drain(cursor, 100)) == marked([(STDERR, b"def")])
    assert cursor.ended


def test_a_removed_log_ends_its_cursor(tmp_path: Path) -> None:
    """Nobody can continue a log that was deleted, so waiting for it is over."""
    path = tmp_path / "a.log"
    write(path, [(STDOUT, b"abc")], end=False)
    cursor = LogCursor(path)
    assert joined(cursor.read()) == b"abc"
    path.unlink()
    assert cursor.read() == cursor.read() == []
    assert cursor.ended


def test_readers_of_one_log_share_its_descriptors(tmp_path: Path) -> None:
    """A hundred cursors on one log cost two descriptors, given back with the last, and read independently."""
    path = tmp_path / "a.log"
    write(path, MANY_WRITES[:20])
    cursors = [LogCursor(path, offset) for offset in range(100)]
    texts = [joined(drain(cursor, 10)) for cursor in cursors]
    assert _descriptors(path) == [str(path), index_path(path)]
    assert texts == [path.read_bytes()[offset:] for offset in range(100)]
    for cursor in cursors:
        cursor.close()
    assert _descriptors(path) == []


def _descriptors(path: Path) -> list[str]:
    """What of a log and its index this process has open, by name."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # of the listing itself, or of somebody else's thread
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(name for name in found if name in (str(path), index_path(path)))


def test_a_shared_look_never_ends_a_cursor_early(tmp_path: Path) -> None:
    """A cursor may rely on another's look that found nothing, but not once it has seen the seal."""
    path = tmp_path / "a.log"
    write(path, [(STDOUT, b"first")], end=False)
    with contextlib.closing(LogCursor(path)) as one, contextlib.closing(LogCursor(path)) as other:
        assert one.read(2) == other.read(2), "both are open"
        assert joined(drain(one, 100)) == joined(other.read(100)) == b"rst"
        write(path, [(STDERR, b"last")])
        assert other.read(100, since=0) == [], "that was the other's look"
        assert joined(other.read(100, since=0)) == b"last"
        assert joined(one.read(100)) == b"last"
        assert one.read(100) == other.read(100) == []
        assert one.ended
        assert other.ended


def test_a_cursor_knows_when_it_has_everything(tmp_path: Path) -> None:
    """Caught up at the end of a log that goes on: not before it, not after the seal, not by a read that is too old."""
    path = tmp_path / "a.log"
    write(path, [(STDOUT, b"first"), (STDOUT, b"second")], end=False)
    with contextlib.closing(LogCursor(path)) as one, contextlib.closing(LogCursor(path)) as other:
        assert (joined(one.read(5)), one.caught_up) == (b"first", False)
        assert (joined(one.read(5)), one.caught_up) == (b"secon", False)
        assert (joined(one.read(5)), one.caught_up) == (b"d", True)
        assert joined(other.read(10)) == b"firstsecon"
        assert (joined(other.read(5, since=0)), other.caught_up) == (b"d", True), "as good as one's read"
        write(path, [(STDERR, b"more")], end=False)
        assert (joined(one.read(100)), one.caught_up) == (b"more", True)
        write(path, [(STDERR, b"last")])
        assert (joined(other.read(100)), other.caught_up) == (b"more", False), "one's read was before the last bytes"
        assert (joined(one.read(100)), one.caught_up) == (b"last", False)
        assert one.read(100) == [] and one.ended and not one.caught_up


def test_small_writes_are_merged_within_their_stream(tmp_path: Path) -> None:
    """Merged segments have every byte in order, never cross streams or the time given, and have the first's time."""
    path = tmp_path / "a.log"
    writes = [(STDOUT, b"a"), (STDOUT, b"b"), (STDERR, b"c"), (STDERR, b"d"), (STDOUT, b"e")]
    write(path, writes, end=False)
    with LogReader(path) as reader:
        times = [segment.time_ns for segment in reader.segments()]
    for others in (0, 1):  # alone, and with a cursor to share with
        with contextlib.ExitStack() as stack:
            for _ in range(others):
                joined(stack.enter_context(contextlib.closing(LogCursor(path))).read())
            found = stack.enter_context(contextlib.closing(LogCursor(path, merge_seconds=3600))).read()
            assert [(item.offset, item.stream, item.data) for item in found] == [
                (0, "stdout", b"ab"),
                (2, "stderr", b"cd"),
                (4, "stdout", b"e"),
            ]
            assert [item.time_ns for item in found] == [times[0], times[2], times[4]]
            apart = stack.enter_context(contextlib.closing(LogCursor(path, merge_seconds=1e-9))).read()
            assert joined(apart) == b"abcde" and len(apart) == len(writes)


def test_a_log_made_anew_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    """While somebody still reads a deleted log, a new one at its path is read as itself."""
    path = tmp_path / "a.log"
    write(path, [(STDOUT, b"old")])
    with LogReader(path) as old:
        path.unlink()
        Path(index_path(path)).unlink()
        write(path, [(STDERR, b"new")])
        with LogReader(path) as new:
            assert joined(new.read(0)) == b"new"
        assert joined(old.read(0)) == b"old"


def test_bad_input_is_named(tmp_path: Path) -> None:
    """A missing log and an offset below zero are refused with the value in the message."""
    with pytest.raises(NotFoundError, match=r"none\.log"):
        LogReader(tmp_path / "none.log")
    with pytest.raises(NotFoundError, match=r"none\.log"):
        repair_index(tmp_path / "none.log")
    with pytest.raises(InvalidInputError, match="-1"):
        LogCursor(tmp_path / "none.log", -1)
    assert LogCursor(tmp_path / "none.log").read() == []


def test_sealing_a_log_that_was_never_begun(tmp_path: Path) -> None:
    """Recovery can end a log whose keeper died before its first byte."""
    path = tmp_path / "a.log"
    assert seal_log(path)
    assert read_live(path, 0, 100) == []
