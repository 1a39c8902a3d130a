"""Relay mode: stdin and stdout of a long-lived worker over its keeper's socket."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from debug_server.errors import KeeperError
from debug_server.model import ExitReason
from debug_server.runner.keeper import frames
from debug_server.runner.keeper_connection import KeeperConnection
from tests.running import Bench, Started, eventually, python

# Answers each request line with the same id; says on stderr what it saw.
ANSWER = (
    "import json, sys\n"
    "for line in sys.stdin:\n"
    "    request = json.loads(line)\n"
    "    sys.stderr.write(f\"saw {request['id']}\\n\"); sys.stderr.flush()\n"
    "    print(json.dumps({'id': request['id'], 'result': request['params']}), flush=True)\n"
)


class Peer:
    """A client of a relaying keeper: attached at an offset, with everything it has received."""

    def __init__(self, started: Started, offset: int = 0) -> None:
        self._connection = started.connect()
        self.offset = offset
        self.received = bytearray()
        self._connection.send({"op": "attach", "offset": offset})

    def write(self, write_id: str, data: bytes) -> None:
        """To the child's stdin."""
        self._connection.send_frame(frames.encode_write(write_id, data))

    def take(self, seconds: float = 60.0) -> bool:
        """One message; False when the keeper has hung up. Output must continue where the last ended."""
        message = self._connection.receive(seconds)
        if message is None:
            return False
        if message.get("event") == "output":
            assert message["offset"] == self.offset, "a gap or a repeat"
            self.received += message["data"]
            self.offset += len(message["data"])
        return True

    def acknowledge(self) -> None:
        """What has come so far is safe; after the last byte the keeper may have left."""
        with contextlib.suppress(KeeperError):
            self._connection.send({"op": "ack", "offset": self.offset})

    def take_until(self, count: int, *, acknowledge: bool = True) -> None:
        """Until so many bytes of the whole output have come."""
        while self.offset < count:
            assert self.take()
            if acknowledge and self.offset < count:
                self.acknowledge()

    def take_line(self) -> dict[str, Any]:
        """The next answer."""
        while b"\n" not in self.received:
            assert self.take()
        line, _, rest = bytes(self.received).partition(b"\n")
        self.received[:] = rest
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._connection.close()


def _pattern(size: int) -> bytes:
    return b"".join(b"%07d\n" % number for number in range(size // 8))


WRITE_PATTERN = (
    "import os, sys\n"
    "data = memoryview(b''.join(b'%07d\\n' % n for n in range(int(sys.argv[1]) // 8)))\n"
    "while data: data = data[os.write(1, data[:30011]):]\n"
)


def test_requests_and_answers(held: Bench) -> None:
    """A JSON-RPC worker answers over the socket; its stderr is logged, its stdout is not."""
    started = held.start(python(ANSWER), stdin=True, relay=True)
    peer = Peer(started)
    for number in range(5):
        peer.write(f"w{number}", json.dumps({"id": number, "params": ["x" * number]}).encode() + b"\n")
        assert peer.take_line() == {"id": number, "result": ["x" * number]}
    peer.close()
    again = Peer(started, peer.offset)
    again.write("last", b'{"id": 99, "params": null}\n')
    assert again.take_line() == {"id": 99, "result": None}
    again._connection.send({"op": "close_stdin"})
    result = started.result()
    again.close()
    assert result.exit_reason is ExitReason.EXITED
    log = held.log(result)
    assert log["stdout"] == b""
    assert log["stderr"] == b"".join(b"saw %d\n" % number for number in [0, 1, 2, 3, 4, 99])
    assert result.exit.stdout_bytes == again.offset


def test_a_late_client_learns_what_was_logged(bench: Bench) -> None:
    """Stderr that was written before anybody was attached is told to the first client, once."""
    code = "import sys; sys.stderr.write('early\\n'); sys.stderr.flush(); sys.stdin.read()"
    started = bench.start(python(code), stdin=True, relay=True)
    started.await_output(b"early")
    told: list[list[int]] = []
    for _ in range(2):
        connection = started.connect()
        connection.send({"op": "attach", "offset": 0, "n": 1})
        told.append([])
        while (message := connection.receive(60.0)) is not None and message.get("n") != 1:
            told[-1] += [message["bytes"]] if message.get("event") == "logged" else []
        connection.close()
    assert told == [[6], []]
    last = started.connect()
    last.request({"op": "close_stdin"})
    last.close()
    assert started.result().exit_reason is ExitReason.EXITED


def test_a_reconnect_loses_nothing_and_repeats_nothing(bench: Bench) -> None:
    """Cut off again and again at odd moments, a client that names its offset gets every byte once."""
    size = 3 << 20
    started = bench.start(python(WRITE_PATTERN + "sys.stdin.read()", size), stdin=True, relay=True)
    collected = bytearray()
    while len(collected) < size:
        peer = Peer(started, len(collected))
        for _ in range(7):
            if peer.offset < size:
                assert peer.take()
        if len(collected) % 3:
            peer.acknowledge()
        collected += peer.received
        peer.close()
    assert bytes(collected) == _pattern(size)
    last = started.connect()
    last.request({"op": "close_stdin"})
    last.close()
    assert started.result().exit_reason is ExitReason.EXITED


def test_whoever_finds_a_worker_gets_what_nobody_has_acknowledged(bench: Bench) -> None:
    """Attaching without an offset begins where the last acknowledgement was."""
    started = bench.start(python(WRITE_PATTERN + "sys.stdin.read()", 80_000), stdin=True, relay=True)
    first = Peer(started)
    first.take_until(40_000, acknowledge=False)
    first.acknowledge()
    kept = first.offset
    first._connection.request({"op": "status"})
    first.close()
    second = started.connect()
    second.send({"op": "attach"})
    if kept < 80_000:
        message = second.receive(60.0)
        while message is not None and "event" not in message:  # the answer comes first if the child was slow
            message = second.receive(60.0)
        assert message is not None
        assert (message["event"], message["offset"]) == ("output", kept)
    second.request({"op": "close_stdin"})
    second.close()
    assert started.result().exit.stdout_bytes == 80_000


def test_the_end_is_told_before_the_tree_is_empty(bench: Bench) -> None:
    """A worker whose leader is gone is announced as ending although a child of it ignores TERM."""
    stubborn = (
        "import os, signal, sys, time\n"
        "if os.fork() == 0:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    os.write(1, b'up'); time.sleep(1000)\n"
        "sys.stdin.read(1)\n"
    )
    started = bench.start(python(stubborn), stdin=True, relay=True)
    peer = Peer(started)
    peer.take_until(2)
    peer.write("go", b"x")
    heard: list[str] = []
    while (message := peer._connection.receive(60.0)) is not None:
        heard += [message["event"]] if "event" in message else []
    peer.close()
    assert heard == ["ending", "exit"]
    assert started.result().exit.evidence["leftovers"]


def test_a_worker_that_nobody_supervises_is_ended(bench: Bench) -> None:
    """Patience begins when the last attached client has left."""
    for patience in (5.0, 30.0):  # begins with the worker, too: the first client must be there before it ends
        started = bench.start(python("import sys; sys.stdin.read()"), stdin=True, relay=True, orphan_seconds=patience)
        if (connection := _attached_in_time(started)) is not None:
            break
    assert connection is not None
    since = time.monotonic()
    while time.monotonic() - since < patience + 0.5:
        assert connection.request({"op": "status"})["ending"] is False
        time.sleep(0.1)
    connection.close()
    result = started.result()
    expected = f"no client was attached for {patience:g} s"
    assert (result.exit_reason, result.exit.message) == (ExitReason.CANCELLED, expected)


def _attached_in_time(started: Started) -> KeeperConnection | None:
    """A client of a worker; None if the worker had waited for one for too long."""
    with contextlib.suppress(KeeperError):
        connection = KeeperConnection.connect(started.run_dir)
        connection.send({"op": "attach", "offset": 0})
        reply = connection.receive(60.0)
        if reply is not None and reply.get("ok") and not connection.request({"op": "status"})["ending"]:
            return connection
        connection.close()
    return None


def test_when_nobody_reads_the_child_waits(bench: Bench) -> None:
    """The keeper holds a bounded piece and then lets the child block; a reader sets it free."""
    progress = bench.root / "progress"
    text = WRITE_PATTERN.replace(
        "data[os.write(1, data[:30011]):]", "data[os.write(1, data[:30011]):]; note(len(data))"
    )
    head = "file = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)\ndef note(left): os.pwrite(file, b'%8d' % left, 0)\n"
    size = 4 << 20
    started = bench.start(python("import os, sys\n" + head + text, size, progress), relay=True)

    def written() -> int:
        text = progress.read_text() if progress.exists() else ""
        return size - int(text) if text else 0

    eventually(lambda: written() >= 1 << 20, what="a full relay")
    seen, since = written(), time.monotonic()
    while time.monotonic() - since < 0.3:
        if written() != seen:
            seen, since = written(), time.monotonic()
    assert 1 << 20 <= seen <= (1 << 20) + (256 << 10)
    peer = Peer(started)
    peer.take_until(size)
    assert bytes(peer.received) == _pattern(size)
    peer.close()
    assert started.result().exit_reason is ExitReason.EXITED


def test_what_is_left_when_the_child_ends_still_arrives(bench: Bench) -> None:
    """A client that is slow to acknowledge gets the rest although the child has gone long ago."""
    size = (1 << 20) + 60_000  # more than the keeper holds: the rest lies in the pipe when the child ends
    started = bench.start(python(WRITE_PATTERN, size), relay=True)
    peer = Peer(started)
    peer.take_until(1 << 20, acknowledge=False)
    time.sleep(1.3)  # longer than a keeper waits for a pipe that somebody outside its tree holds
    peer.acknowledge()
    peer.take_until(size)
    assert bytes(peer.received) == _pattern(size)
    peer.close()
    assert started.result().exit.stdout_bytes == size
