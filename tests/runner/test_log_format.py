"""The writer on a disk that fills up."""

from __future__ import annotations

from pathlib import Path

import pytest

from debug_server.runner.log_follow import follow
from debug_server.runner.log_format import END, RECORD, index_path
from debug_server.runner.log_reader import LogReader

from .log_children import start
from .programs.fill_disk import PIECE


@pytest.mark.parametrize("limit", [PIECE.__len__() * 3, len(PIECE) * 3 + 1, len(PIECE) * 4 - 1, 24 * 3])
def test_a_failed_write_leaves_no_trace_and_can_be_repeated(tmp_path: Path, limit: int) -> None:
    """On a full disk log and index agree, a follower has seen whole writes only, and the repeated write is complete."""
    path = tmp_path / "a.log"
    with start("fill_disk.py", path, limit) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        full, offset = child.stdout.readline().split()
        whole = limit // len(PIECE)
        assert (full, int(offset)) == ("full", whole * len(PIECE))
        assert path.read_bytes() == PIECE * whole
        assert Path(index_path(path)).stat().st_size == RECORD.size * whole
        follower = follow(path)
        seen = [next(follower) for _ in range(whole)]
        child.stdin.write("go on\n")
        child.stdin.flush()
        seen += list(follower)
    assert [(segment.stream, segment.data) for segment in seen] == [("stdout", PIECE)] * whole + [("stderr", PIECE)]
    assert child.returncode == 0


def test_a_full_disk_under_a_follower(tmp_path: Path) -> None:
    """A follower that reads while writes fail and are repeated gets each byte once, on its stream."""
    path = tmp_path / "a.log"
    with follow(path, appear_within=60.0) as follower, start("fill_disk.py", path, len(PIECE) * 300 + 77) as child:
        assert child.stdin is not None
        child.stdin.write("go on\n")
        child.stdin.flush()
        seen = list(follower)
    assert b"".join(segment.data for segment in seen) == PIECE * 301
    assert [segment.stream for segment in seen][-1] == "stderr"
    with LogReader(path) as reader:
        assert reader.ended()
    raw = Path(index_path(path)).read_bytes()
    assert RECORD.unpack(raw[-RECORD.size :])[:3] == (len(PIECE) * 301, 0, END)
