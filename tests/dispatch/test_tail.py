"""Lines of a log: exact whatever the writes were, resumed from every place, no character torn."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from debug_server.dispatch.cursor import Cursor, parse_cursor
from debug_server.dispatch.tail import Lines, Tail
from debug_server.runner.log_stream import LogStream


def _write(path: Path, seed: int) -> dict[str, bytes]:
    choice, whole = random.Random(seed), {"stdout": b"", "stderr": b""}
    with LogStream(path) as log:
        for _ in range(60):
            stream = choice.choice(["stdout", "stderr"])
            text = choice.choice(["a\n", "äö€\n😀", "half", "\n\n", "x" * 70_000, "😀" * 20_000, "", "end\n"])
            log.write(text, stream)
            whole[stream] += text.encode()
    return whole


def _read(path: Path, offsets: tuple[int, int] = (0, 0)) -> list[tuple[Lines, tuple[int, int]]]:
    async def read() -> list[tuple[Lines, tuple[int, int]]]:
        tail, found = Tail(str(path), offsets, asyncio.Event()), []
        while lines := tail.drain():
            for item in lines:
                tail.note(item)
                found.append((item, tail.offsets))
        tail.close()
        return found

    return asyncio.run(read())


def test_every_byte_once_from_every_place(tmp_path: Path) -> None:
    """The pieces of each stream are its bytes; a reader that resumes after any piece gets exactly the others."""
    for seed in range(6):
        path = tmp_path / f"{seed}.log"
        whole = _write(path, seed)
        found = _read(path)
        for stream, data in whole.items():
            assert b"".join(lines.data for lines, _ in found if lines.stream == stream) == data
            for lines, _ in found:
                lines.data.decode()  # no character is torn
        for index in range(0, len(found), 7):
            rest = _read(path, found[index][1])
            for stream in whole:
                expected = b"".join(lines.data for lines, _ in found[index + 1 :] if lines.stream == stream)
                assert b"".join(lines.data for lines, _ in rest if lines.stream == stream) == expected


def test_cursors_come_back() -> None:
    """What a cursor says is what its text says."""
    for cursor in (Cursor(), Cursor(seq=7), Cursor(seq=7, told=1), Cursor(seq=9, tails={3: (1, 2), 12: (0, 9)})):
        assert parse_cursor(str(cursor)) == cursor
