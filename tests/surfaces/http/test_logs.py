"""Logs by every transport: bytes, ranges, lines, events, WebSockets; from any offset, to a clean end."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK

from debug_server.model import Command
from debug_server.runner.log_format import RECORD
from debug_server.store.commands import Commands
from tests.running import eventually
from tests.surfaces.http.serving import SECONDS, Served, answered, refused

TEXT = "žluťoučký kůň €uro 🐎\n"
# One byte at a time, the streams in turn: no read holds a whole character.
SPLIT = """
import os, sys, time
text = sys.argv[1].encode()
for i in range(len(text)):
    os.write(1, text[i:i+1]); time.sleep(0.002)
    os.write(2, text[i:i+1]); time.sleep(0.002)
"""


def texts(records: list[dict[str, Any]], name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for record in records:
        found[record["stream"]] = found.get(record["stream"], "") + record[name]
    return found


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in response.text.splitlines()]


def events(text: str) -> list[dict[str, str]]:
    return [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.split("\n\n") if block]


def fields(lines: Iterator[str]) -> Iterator[str]:
    """The lines of an event stream without its signs of life, which come whenever something takes its time."""
    return (line for line in lines if line and not line.startswith(":"))


def messages(served: Served, path: str) -> list[dict[str, Any]]:
    """Everything that a WebSocket says until it is closed with 1000."""
    with served.socket(path) as socket:
        found = [json.loads(message) for message in socket]
        with pytest.raises(ConnectionClosedOK):
            socket.recv()
        assert socket.close_code == 1000
    return found


def record_count(path: Path) -> int:
    """How many pieces a log was written in."""
    return Path(f"{path}.idx").stat().st_size // RECORD.size


@pytest.fixture(scope="module")
def command(shared: Served) -> int:
    """A command whose characters arrived in halves; a keeper that is kept waiting gets whole ones: then the next."""

    def split() -> int | None:
        found = shared.run(shared.session(), sys.executable, "-c", SPLIT, TEXT)
        pieces = record_count(Path(str(shared.local.store.commands.get(found).log_path)))
        return found if pieces > 2 * len(TEXT) else None

    return int(eventually(split, what="a log in small pieces"))


def test_ranges(shared: Served, command: int) -> None:
    """A range is 206 with its place; behind the end is 416 with the size; what nobody understands is everything."""
    path = f"/commands/{command}/log"
    whole = shared.admin.get(path)
    size = 2 * len(TEXT.encode())
    assert (whole.status_code, len(whole.content), whole.headers["accept-ranges"]) == (200, size, "bytes")
    for asked, start, end in [("5-9", 5, 10), ("7-", 7, size), ("-4", size - 4, size), ("3-99999", 3, size)]:
        part = shared.admin.get(path, headers={"Range": f"bytes={asked}"})
        assert (part.status_code, part.content) == (206, whole.content[start:end])
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    for asked in (f"{size}-", f"{size + 5}-{size + 9}", "-0", "9999999999999999999-", "9" * 40 + "-"):
        behind = shared.admin.get(path, headers={"Range": f"bytes={asked}"})
        refused(behind, 416, "range_not_satisfiable")
        assert behind.headers["content-range"] == f"bytes */{size}"
    for asked in ("bytes=9-5", "bytes=1-2,4-5", "lines=1-2", "bytes=-"):
        assert shared.admin.get(path, headers={"Range": asked}).status_code == 200
    assert shared.admin.get(path, params={"offset": 4}).content == whole.content[4:]
    assert shared.admin.get(path, params={"offset": size + 4}).content == b""
    assert refused(shared.admin.get(path, params={"offset": -1}), 422, "invalid_input")["field"] == "offset"


def test_split_characters_survive_every_transport(shared: Served, command: int) -> None:
    """Text is decoded for each stream by itself: a character that came in pieces is one character."""
    expected = {"stdout": TEXT, "stderr": TEXT}
    path = f"/commands/{command}"
    assert texts(lines(shared.admin.get(f"{path}/log.ndjson")), "message") == expected
    assert texts(lines(shared.admin.get(f"{path}/log.ndjson", params={"follow": True})), "message") == expected
    sent = events(shared.admin.get(f"{path}/log/events").text)
    assert texts([json.loads(event["data"]) for event in sent if event["event"] == "log"], "text") == expected
    assert texts(messages(shared, f"{path}/log"), "text") == expected


def test_text_resumes_anywhere(shared: Served, command: int) -> None:
    """Whoever goes on from the next_offset of any record has, all in all, the same text: no gap, no repeat."""
    path = f"/commands/{command}/log.ndjson"
    records = lines(shared.admin.get(path))
    for index, record in enumerate(records):
        rest = lines(shared.admin.get(path, params={"offset": record["next_offset"]}))
        assert texts(records[: index + 1] + rest, "message") == {"stdout": TEXT, "stderr": TEXT}


def test_events_resume_by_last_event_id(shared: Served, command: int) -> None:
    """Each event's id is where to go on; the last one says how the command ended."""
    path = f"/commands/{command}/log/events"
    sent = events(shared.admin.get(path).text)
    assert json.loads(sent[-1]["data"]) == {
        "id": command,
        "status": "succeeded",
        "exit_code": 0,
        "exit_reason": "exited",
    }
    assert sent[-1]["event"] == "end"
    resumed = events(shared.admin.get(path, headers={"Last-Event-ID": sent[10]["id"]}).text)
    assert resumed == sent[11:]
    refused(shared.admin.get(path, headers={"Last-Event-ID": "x"}), 422, "invalid_input")


def test_base64_is_exact(shared: Served) -> None:
    """Bytes that are no text come through every transport as they are."""
    data = bytes(range(256)) * 40
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40)"
    path = f"/commands/{shared.run(shared.session(), sys.executable, '-c', program)}"
    options: dict[str, str | int] = {"encoding": "base64", "offset": 3}
    asked = "encoding=base64&offset=3"
    sent = events(shared.admin.get(f"{path}/log/events", params=options).text)
    found = [
        lines(shared.admin.get(f"{path}/log.ndjson", params=options)),
        [json.loads(event["data"]) for event in sent if event["event"] == "log"],
        messages(shared, f"{path}/log?{asked}"),
    ]
    for records in found:
        assert b"".join(base64.b64decode(record["data"]) for record in records) == data[3:]
    assert shared.admin.get(f"{path}/log", params={"follow": True}).content == data
    refused(shared.admin.get(f"{path}/log.ndjson", params={"encoding": "latin-1"}), 422, "invalid_input")


def test_an_unfinished_character_at_the_end_is_told(shared: Served) -> None:
    """Bytes that never became a character end as a replacement character, not in silence."""
    program = "import os; os.write(1, b'ab\\xe2\\x82')"
    path = f"/commands/{shared.run(shared.session(), sys.executable, '-c', program)}/log.ndjson"
    assert texts(lines(shared.admin.get(path)), "message") == {"stdout": "ab\ufffd"}


def test_a_session_s_logs_are_one(shared: Served) -> None:
    """All commands of a session, in order, with their ids; resumable by one offset; ends when they have ended."""
    session = shared.session()
    first = shared.run(session, "echo", "one")
    second = shared.run(session, "sh", "-c", "echo two; echo err >&2")
    path = f"/sessions/{session}/logs"
    for records, name in (
        (lines(shared.admin.get(path)), "message"),
        (lines(shared.admin.get(path, params={"follow": True})), "message"),
        (messages(shared, path), "text"),
    ):
        assert "".join(record[name] for record in records if record["stream"] == "stdout") == "one\ntwo\n"
        assert records[0]["command_id"] == first
        assert {record["command_id"] for record in records} == {first, second}
        offsets = [record["offset"] for record in records]
        assert offsets == sorted(offsets) and records[-1]["next_offset"] == 12
    assert messages(shared, f"{path}?offset=6")[0]["text"] == "o\n"
    assert messages(shared, f"{path}?offset=12") == messages(shared, f"{path}?offset=4000") == []


def test_a_follower_waits_for_a_session_s_first_command(shared: Served) -> None:
    """Whoever follows an open session before its first command sees it from its first byte."""
    session = shared.session()
    with shared.socket(f"/sessions/{session}/logs") as socket:
        eventually(lambda: shared.followers, what="a follower")
        shared.submit(session, "sh", "-c", "echo live")
        assert "".join(json.loads(message)["text"] for message in socket) == "live\n"
        assert socket.close_code == 1000


def test_live_output_comes_at_once(shared: Served) -> None:
    """What a running command writes arrives before its end, by each transport."""
    session = shared.session()
    command = shared.submit(session, "sh", "-c", "echo ready; read line; echo $line", stdin=True)
    path = f"/commands/{command}/log"
    with (
        shared.socket(path) as socket,
        shared.admin.stream("GET", f"{path}.ndjson", params={"follow": True}) as ndjson,
        shared.client().stream("GET", f"{path}/events") as sse,
        shared.client().stream("GET", path, params={"follow": True}) as raw,
    ):
        pieces = [ndjson.iter_lines(), sse.iter_lines(), raw.iter_lines()]
        assert json.loads(socket.recv(timeout=SECONDS))["text"] == "ready\n"
        assert json.loads(next(pieces[0]))["message"] == "ready\n"
        said = fields(pieces[1])
        assert [next(said), next(said)] == ["id: 6", "event: log"]
        assert next(pieces[2]) == "ready"
        answered(shared.admin.post(f"/commands/{command}/stdin", json={"write_id": "1", "data": "go\n"}), 200)
        assert "".join(json.loads(message)["text"] for message in socket) == "go\n"
        assert json.loads(next(pieces[0]))["message"] == "go\n" and list(pieces[0]) == []
        assert "event: end" in list(said)
        assert list(pieces[2]) == ["go"]


def test_a_crowd_sees_the_same_text(shared: Served) -> None:
    """Thirty followers of one log, some from the midst of a character, whose characters come in halves: all of it."""
    program = f"import sys; sys.stdin.readline()\n{SPLIT}"
    command = shared.submit(shared.session(), sys.executable, "-c", program, TEXT * 4, stdin=True)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(30) as threads:
        paths = [f"/commands/{command}/log" + ("?offset=1" if number % 3 == 0 else "") for number in range(30)]
        sockets = [stack.enter_context(shared.socket(path)) for path in paths]
        answered(shared.admin.post(f"/commands/{command}/stdin", json={"write_id": "1", "data": "go\n"}), 200)
        found = list(threads.map(lambda socket: [json.loads(message) for message in socket], sockets))
    for records in found:
        assert texts(records, "text") == {"stdout": TEXT * 4, "stderr": TEXT * 4}
        assert all(record["next_offset"] > record["offset"] for record in records)


def test_small_writes_travel_together(shared: Served) -> None:
    """Who comes when a running command has written much in small pieces gets it in a few messages."""
    # A keeper that was kept waiting logs all of it in a few pieces, which proves nothing: then the next one.
    assert any(_travelled_together(shared) for _ in range(10))


def _travelled_together(shared: Served) -> bool:
    """Follow such a command; False when its log was not in small pieces."""
    program = "import os, time\nfor n in range(400): os.write(1, b'%03d\\n' % n); time.sleep(0.001)\ninput()"
    command = shared.submit(shared.session(), sys.executable, "-c", program, stdin=True)
    expected = "".join(f"{number:03}\n" for number in range(400))
    path = Path(eventually(lambda: shared.local.store.commands.get(command).log_path, what="a log"))
    eventually(lambda: path.stat().st_size == len(expected), what="all of the output")
    written = record_count(path)
    if written < 100:
        answered(shared.admin.post(f"/commands/{command}/cancel"), 200)
        return False
    with shared.socket(f"/commands/{command}/log") as socket:
        text, records = "", 0
        while len(text) < len(expected):
            text += json.loads(socket.recv(timeout=SECONDS))["text"]
            records += 1
    answered(shared.admin.post(f"/commands/{command}/cancel"), 200)
    assert text == expected
    assert records < written / 2
    return True


def test_a_command_that_never_started_has_an_empty_log(shared: Served) -> None:
    """OpenStreams of a command that is cancelled in the queue come to a clean end."""
    session = shared.session()
    blocker = shared.submit(session, "sleep", "600")
    waiting = shared.submit(session, "echo", "never")
    with shared.socket(f"/commands/{waiting}/log") as socket:
        eventually(lambda: shared.followers, what="a follower")
        answered(shared.admin.post(f"/commands/{waiting}/cancel"), 200)
        assert list(socket) == [] and socket.close_code == 1000
    assert shared.admin.get(f"/commands/{waiting}/log").content == b""
    answered(shared.admin.post(f"/commands/{blocker}/cancel"), 200)


def test_a_log_that_is_gone_is_not_an_empty_one(shared: Served) -> None:
    """A command that said something, whose file is not there: not_found by every transport."""
    command = shared.run(shared.session(), "echo", "hello")
    Path(str(shared.local.store.commands.get(command).log_path)).unlink()
    for path in ("log", "log?follow=1", "log.ndjson", "log.ndjson?follow=1", "log/events"):
        refused(shared.admin.get(f"/commands/{command}/{path}"), 404, "not_found")
    with pytest.raises(ConnectionClosed) as closed, shared.socket(f"/commands/{command}/log") as socket:
        socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.reason.startswith(f"not_found: the log of command {command} was removed")


def test_the_end_event_tells_an_end(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the row takes to have the end after the log has: until then there are signs of life."""
    held, finish = threading.Event(), Commands.finish

    def late(*given: Any, **more: Any) -> Command:
        assert held.wait(SECONDS)
        return finish(*given, **more)

    monkeypatch.setattr(Commands, "finish", late)
    monkeypatch.setattr("debug_server.service.logs._ROW_SECONDS", 0.1)
    monkeypatch.setattr("debug_server.surfaces.http.logs._END_SECONDS", 0.1)
    served = Served(base, heartbeat_seconds=0.1)
    try:
        command = served.submit(served.session(), "sh", "-c", "sleep 0.1; echo hello")
        with served.admin.stream("GET", f"/commands/{command}/log/events") as stream:
            found = stream.iter_lines()
            assert "event: log" in found
            beats = itertools.islice((line for line in found if line.startswith((":", "event"))), 10)
            assert set(beats) == {": heartbeat"}
            held.set()
            assert "event: end" in found
            assert json.loads(next(found).removeprefix("data: "))["status"] == "succeeded"
    finally:
        held.set()
        served.close()


def test_heartbeats_and_the_event_stream(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A silent stream shows that it lives; durable events are resumed by their number."""
    served = Served(tmp_path_factory.mktemp("beats"), heartbeat_seconds=0.1)
    try:
        session = served.session()
        with served.admin.stream("GET", "/events/stream", params={"session_id": session}) as stream:
            found = stream.iter_lines()
            said = fields(found)
            assert [next(said), next(said)] == ["id: 1", "event: session.created"]
            assert ": heartbeat" in found
            served.submit(session, "true")
            assert "event: command.pending" in found
        headers = {"Last-Event-ID": "1"}
        with served.client().stream("GET", "/events/stream", headers=headers) as stream:
            assert next(fields(stream.iter_lines())) == "id: 2"
        eventually(lambda: served.followers == 0, what="the end of the followers")
    finally:
        served.close()


def test_parts_for_a_reader(shared: Served) -> None:
    """The last lines, matching lines and the digest of a log; each names offsets that fit the log's bytes."""
    script = r"seq 2000; echo FAILED tests/a.py::test_x - boom; printf '\377end\n'; exit 1"
    command = shared.run(shared.session(), "sh", "-c", script)
    path = f"/commands/{command}/log"
    whole = shared.admin.get(path).content
    tail = answered(shared.admin.get(f"{path}/text", params={"tail": 1}), 200)
    assert (tail["text"], tail["exact"], tail["ended"], tail["log_bytes"]) == ("\ufffdend\n", False, True, len(whole))
    exact = answered(shared.admin.get(f"{path}/text", params={"tail": 1, "encoding": "base64"}), 200)
    assert base64.b64decode(exact["text"]) == b"\xffend\n" == whole[exact["offset"] :]
    found = answered(shared.admin.get(f"{path}/text", params={"grep": "^19+7$", "context": 1}), 200)
    assert [(item["before"], item["text"], item["after"]) for item in found["matches"]] == [
        (["196"], "197", ["198"]),
        (["1996"], "1997", ["1998"]),
    ]
    assert whole[found["matches"][0]["offset"] : found["matches"][0]["end"]] == b"197"
    digest = answered(shared.admin.get(f"{path}/digest", params={"max_tokens": 300}), 200)
    assert [item["id"] for item in digest["failing"]] == ["tests/a.py::test_x"]
    assert digest["omitted"]["lines"] == digest["lines"] - sum(x["count"] for x in digest["head"] + digest["tail"])
    assert whole[digest["first_error"]["offset"] :].startswith(b"FAILED tests/a.py::test_x")
    for name, query in (("grep", {"grep": "("}), ("tail", {"tail": 0}), ("max_tokens", {"max_tokens": 1})):
        where = "digest" if name == "max_tokens" else "text"
        assert name in refused(shared.admin.get(f"{path}/{where}", params=query), 422, "invalid_input")["message"]


def test_a_log_that_is_not_there_yet_is_empty(served: Served) -> None:
    """A command that waits for its turn has an empty text and an empty digest."""
    session = served.session()
    served.submit(session, "sleep", "600")
    waiting = served.submit(session, "true")
    text = answered(served.admin.get(f"/commands/{waiting}/log/text", params={"tail": 5}), 200)
    assert (text["text"], text["ended"], text["log_bytes"]) == ("", False, 0)
    assert answered(served.admin.get(f"/commands/{waiting}/log/digest"), 200)["end"] == 0
