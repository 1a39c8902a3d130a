"""LogStream as the seed shows it, and what isolates it from those who listen."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_server.errors import InvalidInputError
from debug_server.runner import log_stream
from debug_server.runner.log_chunk import ChunkDecoder
from debug_server.runner.log_format import index_path
from debug_server.runner.log_reader import LogReader, LogSegment
from debug_server.runner.log_stream import LogChunk, LogStream, follow_log, observe_log

from .log_children import ROOT, start
from .programs.write_log import writes


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write and a close that wait for a listener as long as it takes: how long they do is not what is tested."""
    monkeypatch.setattr(log_stream, "_LISTENER_BUDGET", 60.0)
    monkeypatch.setattr(log_stream, "_CLOSE_BUDGET", 60.0)


def test_the_seeds_example(tmp_path: Path) -> None:
    """Write, follow, close: directories are made, and the subscription gives the chunk and ends."""
    path = tmp_path / "logs" / "sess-1" / "build.log"
    with LogStream(path) as stream:
        stream.write("starting build\n")
        subscription = stream.follow()
    assert [chunk.text for chunk in subscription] == ["starting build\n"]
    assert path.read_text() == "starting build\n"
    assert stream.path == path


@pytest.mark.usefixtures("patient")
def test_a_chunk_says_what_when_and_where(tmp_path: Path) -> None:
    """Write returns the chunk that listener, follower and replay also give: stream, text, UTC time, offset, bytes."""
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    got: list[LogChunk] = []
    with LogStream(tmp_path / "a.log") as stream:
        stream.add_listener(got.append)
        written = [stream.write("grün\n"), stream.write(b"\x00raw", stream="stderr"), stream.write("note", "system")]
        assert got == written
        assert list(stream.replay()) == written
    assert list(stream.follow()) == list(follow_log(stream.path)) == written
    assert [(c.stream, c.text, c.offset) for c in written] == [
        ("stdout", "grün\n", 0),
        ("stderr", "\x00raw", 6),
        ("system", "note", 10),
    ]
    assert all(before <= chunk.timestamp <= datetime.now(UTC) for chunk in written)
    assert written[0].timestamp.utcoffset() == timedelta(0)
    assert LogChunk("stdout", "x", before).data == b""


def test_following_from_an_offset(tmp_path: Path) -> None:
    """A follower that knows an offset gets what comes after it."""
    with LogStream(tmp_path / "a.log") as stream:
        stream.write("one")
        after = stream.write("two").offset
        subscription = stream.follow(after)
        stream.write("three")
    assert [chunk.text for chunk in subscription] == ["two", "three"]


def test_a_character_split_over_writes_is_whole_in_the_text(tmp_path: Path) -> None:
    """Halves of a character are joined per stream, bad bytes become U+FFFD, a half at the end comes last."""
    euro = "€".encode()
    with LogStream(tmp_path / "a.log") as stream:
        for data, name in [
            (euro[:1], "stdout"),
            (euro[:2], "stderr"),
            (euro[1:] + b"!", "stdout"),
            (b"\xff", "stdout"),
        ]:
            stream.write(data, name)
        chunks = list(stream.replay())
    assert [(c.stream, c.text) for c in chunks] == [
        ("stdout", ""),
        ("stderr", ""),
        ("stdout", "€!"),
        ("stdout", "\ufffd"),
        ("stderr", "\ufffd"),
    ]
    assert b"".join(c.data for c in chunks) == stream.path.read_bytes()
    assert list(follow_log(stream.path)) == chunks


@given(text=st.text(), cuts=st.lists(st.integers(0, 400)))
def test_text_survives_any_cut(text: str, cuts: list[int]) -> None:
    """However the bytes of a text are cut into segments, the decoded pieces make up the text."""
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    decoder = ChunkDecoder()
    pieces = [
        decoder.decode(LogSegment(offset=a, stream="stdout", data=data[a:b], time_ns=0)).text
        for a, b in itertools.pairwise(edges)
    ]
    assert "".join(pieces) == text
    assert decoder.flush() == []


def test_odd_text_is_written_all_the_same(tmp_path: Path) -> None:
    """A file name with undecodable bytes keeps them, half a surrogate pair is replaced, an empty write is none."""
    with LogStream(tmp_path / "a.log") as stream:
        stream.write(os.fsdecode(b"caf\xe9"))
        stream.write("\ud800")
        assert stream.write("").text == ""
    assert stream.path.read_bytes() == b"caf\xe9?"


def test_appending_to_a_log_that_was_closed(tmp_path: Path) -> None:
    """A second LogStream continues the log: a follower from the start gets both parts and waits for the second end."""
    path = tmp_path / "a.log"
    with LogStream(path) as stream:
        stream.write("one")
    with LogStream(path) as stream:
        subscription = follow_log(path)
        assert next(subscription).text == "one"
        stream.write("two", "stderr")
    assert [(c.stream, c.text) for c in subscription] == [("stderr", "two")]


def test_appending_to_a_log_with_a_broken_index(tmp_path: Path) -> None:
    """Opening repairs: what was there is replayed as stdout, what is added keeps its stream."""
    path = tmp_path / "a.log"
    path.write_bytes(b"old bytes")
    Path(index_path(path)).write_bytes(b"\x99" * 31)
    with LogStream(path) as stream:
        stream.write("new", "stderr")
    assert [(c.stream, c.text) for c in stream.replay()] == [("stdout", "old bytes"), ("stderr", "new")]


def test_misuse_is_named(tmp_path: Path) -> None:
    """A closed stream, an unknown stream name, a second writer and a path that cannot be are refused clearly."""
    stream = LogStream(tmp_path / "a.log")
    with pytest.raises(InvalidInputError, match=r"'stdin'.*stdout, stderr, system"):
        stream.write("x", "stdin")
    with pytest.raises(InvalidInputError, match=r"a\.log already has a writer"):
        LogStream(tmp_path / "a.log")
    stream.close()
    stream.close()
    with pytest.raises(InvalidInputError, match=r"a\.log is closed"):
        stream.write("x")
    with pytest.raises(InvalidInputError, match="is closed"):
        stream.add_listener(print)
    with pytest.raises(InvalidInputError, match=r"a\.log/b\.log cannot be written"):
        LogStream(tmp_path / "a.log" / "b.log")


def test_a_second_writer_in_another_process_is_refused(tmp_path: Path) -> None:
    """The lock holds between processes, and goes with its holder."""
    program = "import sys\nfrom debug_server.runner.log_stream import LogStream\nLogStream(sys.argv[1]).close()"
    command = [sys.executable, "-c", program, str(tmp_path / "a.log")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with LogStream(tmp_path / "a.log"):
        refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert "already has a writer" in refused.stderr
    subprocess.run(command, env=environment, timeout=100, check=True)


@pytest.mark.usefixtures("patient")
def test_a_quick_listener_is_as_good_as_synchronous(tmp_path: Path) -> None:
    """When write returns a quick listener has the chunk; once removed it gets no more."""
    got: list[str] = []
    with LogStream(tmp_path / "a.log") as stream:
        stream.write("before")
        remove = stream.add_listener(lambda chunk: got.append(chunk.text))
        for number in range(20):
            stream.write(str(number))
            assert got[-1] == str(number)
        remove()
        remove()
        stream.write("after")
    assert got == [str(number) for number in range(20)]


@pytest.mark.usefixtures("patient")
def test_a_listener_may_write_and_remove_itself(tmp_path: Path) -> None:
    """A listener that calls back into its stream does not lock it up."""
    with LogStream(tmp_path / "a.log") as stream:

        def answer(chunk: LogChunk) -> None:
            remove()
            stream.write("answer to " + chunk.text)

        remove = stream.add_listener(answer)
        stream.write("question")
    assert stream.path.read_text() == "questionanswer to question"


def test_a_slow_listener_costs_one_budget_and_misses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    """A listener that blocks delays one write by its budget and no other; released, it has every chunk when close
    ends."""
    monkeypatch.setattr(log_stream, "_LISTENER_BUDGET", 0.3)
    release = threading.Event()
    got: list[str] = []

    def slow(chunk: LogChunk) -> None:
        release.wait(100)
        got.append(chunk.text)

    with LogStream(tmp_path / "a.log") as stream:
        stream.add_listener(slow)
        started = time.monotonic()
        for number in range(200):
            stream.write(f"{number} ")
        assert time.monotonic() - started < 30, "two hundred budgets would be sixty seconds"
        assert got == []
        release.set()
    assert "".join(got) == stream.path.read_text()
    [record] = _reports(caplog)
    assert (record.__dict__["reason"], record.__dict__["offset"]) == ("slow", 0)


@pytest.mark.usefixtures("patient")
def test_a_raising_listener_is_cut_loose(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that raises is called no more, the others go on, and the warning has the offset to read again from."""
    got: list[str] = []
    calls: list[str] = []

    def faulty(chunk: LogChunk) -> None:
        calls.append(chunk.text)
        if chunk.text == "bad":
            raise RuntimeError("no")

    with LogStream(tmp_path / "a.log") as stream:
        stream.add_listener(faulty)
        stream.add_listener(lambda chunk: got.append(chunk.text))
        for text in ("good", "bad", "more"):
            stream.write(text)
    assert calls == ["good", "bad"]
    assert got == ["good", "bad", "more"]
    [record] = _reports(caplog)
    assert (record.__dict__["reason"], record.__dict__["offset"]) == ("raised RuntimeError: no", len("good"))
    assert record.__dict__["path"] == str(stream.path)
    with LogReader(stream.path) as reader:
        assert b"".join(s.data for s in reader.segments(record.__dict__["offset"])) == b"badmore"


def test_close_does_not_wait_for_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A listener that never returns holds close for about a second, and is reported with its offset."""
    release = threading.Event()
    stream = LogStream(tmp_path / "a.log")
    stream.add_listener(lambda _: release.wait(60))
    stream.write("x")
    started = time.monotonic()
    stream.close()
    assert time.monotonic() - started < 30
    release.set()
    assert [(record.message, record.__dict__["reason"]) for record in _reports(caplog)] == [
        ("log_listener_lagging", "slow"),
        ("log_listener_detached", "unfinished"),
    ]


def _reports(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The log records about listeners."""
    return [record for record in caplog.records if record.message.startswith("log_listener_")]


@pytest.mark.usefixtures("patient")
def test_writers_in_many_threads(tmp_path: Path) -> None:
    """Writes of several threads never mix within one write, and listener and follower agree with the file."""
    got: list[bytes] = []
    with LogStream(tmp_path / "a.log") as stream:
        stream.add_listener(lambda chunk: got.append(chunk.data))
        subscription = stream.follow()
        threads = [
            threading.Thread(target=lambda n=n: [stream.write(f"{n}" * 50 + "\n") for _ in range(50)]) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = stream.path.read_text().splitlines()
    assert sorted(lines) == sorted(f"{n}" * 50 for n in range(4) for _ in range(50))
    assert b"".join(got) == b"".join(chunk.data for chunk in subscription) == stream.path.read_bytes()


def test_a_subscription_closed_elsewhere_ends(tmp_path: Path) -> None:
    """Close from another thread ends a waiting iteration, without a tail, and the stream goes on."""
    with LogStream(tmp_path / "a.log") as stream, stream.follow() as subscription:
        stream.write(b"\xe2\x82")
        assert next(subscription).data == b"\xe2\x82"
        rest: list[LogChunk] = []
        waiting = threading.Thread(target=lambda: rest.extend(subscription))
        waiting.start()
        subscription.close()
        waiting.join(60)
        assert not waiting.is_alive()
        assert rest == []
        stream.write("x")


def test_observers_of_a_log_that_another_process_writes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Observers attached before the log exists get every byte by the end of finish; a raising one is reported."""
    path = tmp_path / "a.log"
    got: list[bytes] = []
    observers = observe_log(path, [lambda chunk: got.append(chunk.data), lambda _: 1 // 0])
    with start("write_log.py", path, 8, 100, 0.001):
        pass
    assert observers.finish(60)
    assert b"".join(got) == b"".join(data for _, data in writes(8, 100))
    assert len(_reports(caplog)) == 1


def test_observers_of_a_log_without_an_end(tmp_path: Path) -> None:
    """Finish drains what is there although nobody sealed the log, even one that never began."""
    path = tmp_path / "a.log"
    got: list[str] = []
    observers = observe_log(path, [lambda chunk: got.append(chunk.text)])
    path.write_text("left behind")
    assert observers.finish(60)
    assert got == ["left behind"]
    assert observe_log(tmp_path / "never.log", [print]).finish(60)


def test_a_stuck_observer_is_left_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Finish returns False at its timeout, with a warning, while the observer is still in its call."""
    path = tmp_path / "a.log"
    path.write_text("x")
    entered, release = threading.Event(), threading.Event()

    def stuck(_: LogChunk) -> None:
        entered.set()
        release.wait(60)

    observers = observe_log(path, [stuck])
    assert entered.wait(60)
    assert not observers.finish(0.1)
    release.set()
    assert [record.levelno for record in _reports(caplog)] == [logging.WARNING]
