"""Lines of a log: exact for any sequence of writes, resumed at any offset, no character split."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from debug_server.dispatch.log_lines import LineReader, Lines
from debug_server.dispatch.stream import Cursor, parse_cursor
from debug_server.runner.log_stream import LogStream
from debug_server.service.logs import OpenLog


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
        reader, found = LineReader(OpenLog(1, str(path), min(offsets), lambda: None), offsets), []
        while lines := reader.drain():
            for item in lines:
                reader.mark_sent(item)
                found.append((item, reader.offsets))
        reader.close()
        return found

    return asyncio.run(read())


def test_every_byte_is_read_once_from_any_offset(tmp_path: Path) -> None:
    """The pieces of each stream are its bytes; a reader that resumes after any piece gets exactly the others."""
    for seed in range(6):
        path = tmp_path / f"{seed}.log"
        whole = _write(path, seed)
        found = _read(path)
        for stream, data in whole.items():
            assert b"".join(lines.data for lines, _ in found if lines.stream == stream) == data
            for lines, _ in found:
                lines.data.decode()  # no character is split
        for index in range(0, len(found), 7):
            rest = _read(path, found[index][1])
            for stream in whole:
                expected = b"".join(lines.data for lines, _ in found[index + 1 :] if lines.stream == stream)
                assert b"".join(lines.data for lines, _ in rest if lines.stream == stream) == expected


def test_a_cursor_survives_its_text() -> None:
    """Parsing the text of a cursor gives the same cursor."""
    for cursor in (Cursor(), Cursor(seq=7), Cursor(seq=7, sent=1), Cursor(seq=9, logs={3: (1, 2), 12: (0, 9)})):
        assert parse_cursor(str(cursor)) == cursor
