"""A keeper's socket: who may speak, what it answers, and that nothing said on it can end the keeper by accident."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from debug_server.errors import KeeperError
from debug_server.model import ExitReason
from debug_server.runner.keeper import frames
from debug_server.runner.keeper.linux import is_alive
from debug_server.runner.keeper.rundir import PREFIX
from debug_server.runner.keeper_connection import KeeperConnection
from tests.running import ROOT, Bench, Started, eventually, python

ECHO = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.buffer.flush()"
SLEEP = ["sleep", "1000"]
SECONDS = 60.0  # for an answer


def _status(started: Started) -> dict[str, object]:
    with started.connect() as connection:
        return connection.request({"op": "status"})


def _end(bench: Bench, started: Started) -> None:
    bench.supervisor.pipeline.cancel(started.command.id)
    assert started.result().exit_reason is ExitReason.CANCELLED


def _raw(started: Started) -> socket.socket:
    started.connect().close()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(SECONDS)
    directory = os.open(started.run_dir, os.O_RDONLY)
    try:
        connection.connect(f"/proc/self/fd/{directory}/control.sock")
    finally:
        os.close(directory)
    return connection


def test_a_keeper_that_does_not_answer_is_told_by_name(bench: Bench) -> None:
    """One that gets no processor, and a child that does not read: an error of ours that says how long was waited."""
    bench.dismiss_watchdog()
    started = bench.start(SLEEP, stdin=True)
    keeper = started.handle()["keeper"]["pid"]
    with started.connect() as connection:
        os.kill(keeper, signal.SIGSTOP)
        try:
            with pytest.raises(KeeperError, match=r"did not answer within 0\.1 s"):
                connection.request({"op": "status"}, timeout=0.1)
        finally:
            os.kill(keeper, signal.SIGCONT)
    with started.connect() as connection, pytest.raises(KeeperError, match=r"did not take its input within 0\.1 s"):
        connection.write_stdin("much", b"x" * (1 << 20), timeout=0.1)
    _end(bench, started)


def test_a_write_id_is_applied_once(held: Bench) -> None:
    """A write that is sent again with the same id, on any connection, reaches the child once and is answered well."""
    started = held.start(python(ECHO), stdin=True)
    with started.connect() as first:
        first.send_frame(frames.encode_write("a", b"one\n"))
        assert first.receive(SECONDS) == {"ok": True, "write": "a"}
    with started.connect() as second:
        second.send_frame(frames.encode_write("a", b"one\n"))
        assert second.receive(SECONDS) == {"ok": True, "write": "a", "repeated": True}
        second.send_frame(frames.encode_write("b", b"two\n"))
        assert second.receive(SECONDS) == {"ok": True, "write": "b"}
        assert second.request({"op": "close_stdin"})["ok"]
        with contextlib.suppress(KeeperError):  # the child may have ended already, and its keeper's socket with it
            second.send_frame(frames.encode_write("c", b"three\n"))
            while (refused := second.receive(SECONDS)) is not None and "event" in refused:
                pass  # the end of the child is told to everybody, and may come first
            assert refused is None or not refused["ok"]
    result = started.result()
    assert result.exit_reason is ExitReason.EXITED
    assert held.log(result)["stdout"] == b"one\ntwo\n"


def test_a_mebibyte_reaches_a_slow_reader(bench: Bench, tmp_path: Path) -> None:
    """1 MiB in one write is taken piece by piece as the child reads, answered when the pipe has all of it."""
    slow = (
        "import os, sys, time\nos.read(os.open(sys.argv[1], os.O_RDONLY), 1); data = b''\n"
        "while piece := sys.stdin.buffer.raw.read(16384): data += piece; time.sleep(0.001)\n"
        "sys.stdout.buffer.write(data)"
    )
    sent = os.urandom(1 << 20)
    fifo = bench.root / "gate"
    os.mkfifo(fifo)
    started = bench.start(python(slow, fifo), stdin=True)
    with started.connect() as connection:
        connection.send_frame(frames.encode_write("big", sent))
        connection.send_frame(frames.encode_write("more", b"x" * (1 << 20)))
        more = connection.receive(SECONDS)
        assert more is not None and more["write"] == "more"
        assert more["retry"], "a second one does not fit beside it and must be tried again"
        fifo.write_bytes(b"go")
        assert connection.receive(SECONDS) == {"ok": True, "write": "big"}
        connection.request({"op": "close_stdin"})
    assert bench.log(started.result())["stdout"] == sent


def test_a_write_to_a_child_that_closed_its_stdin_is_refused(bench: Bench) -> None:
    """The writer is told, and the command goes on."""
    started = bench.start(["sh", "-c", "exec <&-; echo closed; exec sleep 1000"], stdin=True)
    started.await_output(b"closed")
    with started.connect() as connection:
        connection.send_frame(frames.encode_write("a", b"x"))
        reply = connection.receive(SECONDS)
        assert reply is not None and not reply["ok"] and "stdin" in reply["error"]
    _end(bench, started)


def test_a_command_without_stdin_says_so(bench: Bench) -> None:
    """Its stdin is /dev/null and a write is refused."""
    started = bench.start(SLEEP)
    with started.connect() as connection:
        connection.send_frame(frames.encode_write("a", b"x"))
        assert connection.receive(SECONDS) == {"ok": False, "write": "a", "error": "the command has no stdin"}
    _end(bench, started)


def test_a_terminal_is_a_terminal(held: Bench) -> None:
    """isatty holds for all three, the window has the size that was asked, a resize arrives, ^D ends the input."""
    text = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\n"
        "print([os.isatty(fd) for fd in (0, 1, 2)], tuple(os.get_terminal_size(0)), flush=True)\n"
        "signal.sigwait([signal.SIGWINCH]); print(tuple(os.get_terminal_size(0)), flush=True)\n"
        "while line := os.read(0, 100): print(repr(line), flush=True)\n"
        "print('end of input')"
    )
    started = held.start(python(text), tty=True)
    started.await_output(b"(80, 24)")
    with started.connect() as connection:
        assert connection.request({"op": "resize", "rows": 40, "cols": 132})["ok"]
        started.await_output(b"(132, 40)")
        connection.send_frame(frames.encode_write("a", b"hello\n"))
        started.await_output(b"b'hello\\n'")
        connection.send_frame(frames.encode_write("b", b"no newline"))
        assert connection.request({"op": "close_stdin"})["ok"]
    result = started.result()
    assert result.exit_reason is ExitReason.EXITED
    stdout = held.log(result)["stdout"]
    assert stdout.startswith(b"[True, True, True] (80, 24)\r\n")
    assert b"b'no newline'" in stdout and stdout.endswith(b"end of input\r\n")


def test_a_full_terminal_does_not_end_the_keeper(bench: Bench) -> None:
    """More input than a terminal holds, and then its end, wait until the child reads."""
    text = (
        "import os, sys, termios\n"
        "mode = termios.tcgetattr(0); mode[3] &= ~(termios.ICANON | termios.ECHO); termios.tcsetattr(0, 0, mode)\n"
        "print('ready', flush=True); os.read(os.open(sys.argv[1], os.O_RDONLY), 1); total = 0\n"
        "while not (data := os.read(0, 4096)).endswith(b'\\x04'): total += len(data)\n"
        "print(total + len(data) - 1)"
    )
    fifo = bench.root / "gate"
    os.mkfifo(fifo)
    started = bench.start(python(text, fifo), tty=True)
    started.await_output(b"ready")
    with started.connect() as connection:
        connection.send_frame(frames.encode_write("a", b"x" * 20_000 + b"\n"))
        assert connection.request({"op": "close_stdin"})["ok"]
        assert connection.request({"op": "status"})["ok"]
        fifo.write_bytes(b"go")
    result = started.result()
    assert result.exit_reason is ExitReason.EXITED
    assert bench.log(result)["stdout"].endswith(b"20001\r\n")


def test_a_signal_reaches_the_command(held: Bench) -> None:
    """The leader gets what was sent; its own handler decides what that means."""
    started = held.start(
        python(
            "import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))\n"
            "print('ready', flush=True)\n"
            "while True: time.sleep(1)"
        )
    )
    started.await_output(b"ready")
    with started.connect() as connection:
        assert connection.request({"op": "signal", "signal": signal.SIGUSR1})["ok"]
    result = started.result()
    assert (result.exit_reason, result.exit_code) == (ExitReason.NONZERO_EXIT, 7)


def test_a_signal_that_is_not_ours_is_its_own_reason(held: Bench) -> None:
    """SIGKILL from elsewhere ends the command as ``signaled``, with its number."""
    started = held.start(SLEEP)
    with started.connect() as connection:
        # The init of a pid namespace may have yet to fork the command's process.
        eventually(lambda: connection.request({"op": "signal", "signal": signal.SIGKILL})["ok"], what="a process")
    result = started.result()
    assert (result.exit_reason, result.exit.signal, result.exit_code) == (ExitReason.SIGNALED, signal.SIGKILL, None)


def test_sigterm_to_the_keeper_ends_the_command_in_order(held: Bench) -> None:
    """A machine that shuts down asks the keeper; the tree ends and the record says why."""
    started = held.start(SLEEP)
    os.kill(started.handle()["keeper"]["pid"], signal.SIGTERM)
    result = started.result()
    assert result.exit_reason is ExitReason.CANCELLED
    assert "keeper" in result.exit.message


def test_sigterm_to_an_idle_keeper_leaves_nothing(held: Bench) -> None:
    """It removes its directory and its groups, and the next command gets another keeper."""
    started = held.start(["cat"], stdin=True)
    handle = started.handle()
    keeper, groups = handle["keeper"], handle["tree"].get("groups", {})
    with started.connect() as connection:
        connection.request({"op": "close_stdin"})
    assert started.result().exit_code == 0
    keepers = held.settings.paths.keepers_dir
    eventually(lambda: list(keepers.glob(f"{PREFIX}{keeper['pid']}-*")), what="an idle keeper")
    os.kill(keeper["pid"], signal.SIGTERM)
    eventually(lambda: not is_alive(keeper["pid"], keeper["start_time"]), what="its end")
    eventually(lambda: not list(keepers.glob(f"{PREFIX}{keeper['pid']}-*")), what="the end of its directory")
    eventually(lambda: not any(Path(path).exists() for path in groups.values()), what="the end of its groups")
    assert held.run(["true"]).exit_code == 0


BUSY = """
import os, signal, socket
from debug_server.runner.keeper.containment import choose
from debug_server.runner.keeper.linux import boot_id
from debug_server.runner.keeper.spare import Spare, install_handlers

server, connection = socket.socketpair()
install_handlers()
spare = Spare(connection, choose("auto"), boot_id())
mounts = spare._containment.mounts
if mounts is not None:  # from now on it also waits for changes of the mounts
    mounts.enter_often("/")
    mounts.leave()
os.kill(os.getpid(), signal.SIGTERM)
print(spare.await_orders())
"""


def test_sigterm_just_before_it_is_idle_is_not_lost() -> None:
    """A keeper that has sent the end of its command and not waited yet ends, too."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", BUSY]
    done = subprocess.run(program, env=environment, capture_output=True, timeout=SECONDS, check=False)
    assert (done.stdout, done.returncode) == (b"None\n", 0), done.stderr


LATE = """
import os, signal, socket
from debug_server.runner.keeper.containment import choose
from debug_server.runner.keeper.linux import boot_id
from debug_server.runner.keeper.spare import Spare, install_handlers

class Late(Spare):
    _idle = False

    def __setattr__(self, name, value):
        if name == "_idle" and not value and self._idle and not self.asked_to_end:
            os.kill(os.getpid(), signal.SIGTERM)
        super().__setattr__(name, value)

server, connection = socket.socketpair()
install_handlers()
spare = Late(connection, choose("auto"), boot_id())
server.close()
print(spare.await_orders())
os.kill(os.getpid(), signal.SIGTERM)
spare.leave()
"""


def test_sigterm_when_it_stops_being_idle_ends_it_in_order() -> None:
    """A keeper whose wait has just ended, and which is asked to end twice, leaves as it does at any other time."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", LATE]
    done = subprocess.run(program, env=environment, capture_output=True, timeout=SECONDS, check=False)
    assert (done.stdout, done.returncode) == (b"None\n", 0), done.stderr


NONSENSE = {
    "not json": frames.encode(frames.JSON, b"{nonsense"),
    "not utf-8": frames.encode(frames.JSON, b"\xff\xfe"),
    "an array": frames.encode(frames.JSON, b"[1, 2]"),
    "a number": frames.encode(frames.JSON, b"5"),
    "no verb": frames.encode_json({"hello": 1}),
    "a verb of no kind": frames.encode_json({"op": []}),
    "nested": frames.encode(frames.JSON, b"[" * 200_000),
    "an unknown frame": frames.encode(b"Z"[0], b"zzz"),
    "a huge frame": frames.HEADER.pack(1 << 31, frames.JSON),
    "an empty write": frames.encode(frames.WRITE, b""),
    "a write id of no kind": frames.encode(frames.WRITE, struct.pack("<H", 2) + b"\xff\xff"),
    "a huge signal": frames.encode_json({"op": "signal", "signal": 10**30}),
    "an endless signal": frames.encode(frames.JSON, b'{"op": "signal", "signal": Infinity}'),
    "no signal": frames.encode_json({"op": "signal"}),
    "a huge window": frames.encode_json({"op": "resize", "rows": 1 << 20, "cols": -1}),
    "a wrong grace": frames.encode_json({"op": "cancel", "grace": "soon"}),
    "an offset of no kind": frames.encode_json({"op": "attach", "offset": None}),
}


def test_nonsense_does_not_end_the_keeper(bench: Bench) -> None:
    """Whatever a client sends that is not understood, it is told or hung up on, and the command goes on."""
    started = bench.start(SLEEP, tty=True)
    for what, frame in NONSENSE.items():
        with _raw(started) as connection:
            connection.sendall(frame)
            buffer = frames.FrameBuffer()
            answer = frames.receive(connection, buffer)
            assert answer is None or not json.loads(answer[0][1])["ok"], what
        assert _status(started)["ok"], what
    _end(bench, started)


def test_an_unknown_verb_is_refused_by_name(bench: Bench) -> None:
    """The connection stays and serves the next request."""
    started = bench.start(SLEEP)
    with started.connect() as connection:
        reply = connection.request({"op": "dance"})
        assert not reply["ok"] and "dance" in reply["error"]
        assert connection.request({"op": "status"})["ok"]
        assert not connection.request({"op": "signal", "signal": 200})["ok"]
        assert not connection.request({"op": "resize", "rows": 1, "cols": 1})["ok"]
        assert not connection.request({"op": "attach", "offset": 0})["ok"]
    _end(bench, started)


def test_a_client_that_never_reads_is_dropped(bench: Bench) -> None:
    """Requests without end, answers never read: the keeper hangs up on that client and on nobody else."""
    started = bench.start(SLEEP)
    request = frames.encode_json({"op": "status"}) * 1000
    with _raw(started) as connection, pytest.raises(ConnectionError):
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            connection.sendall(request)
    assert _status(started)["ok"]
    _end(bench, started)


def test_more_clients_than_descriptors_do_not_end_the_keeper(bench: Bench) -> None:
    """Some of a crowd are hung up on; the command goes on, and who comes after the crowd is answered again."""
    started = bench.start(SLEEP)

    def answers() -> bool:
        try:
            return bool(_status(started)["ok"])
        except KeeperError:  # the keeper has not yet noticed that the crowd has left
            return False

    crowd: list[socket.socket] = []
    try:
        for _ in range(400):
            crowd.append(_raw(started))
    except OSError:
        pass
    finally:
        for connection in crowd:
            connection.close()
    eventually(answers, what="an answer after the crowd has left")
    _end(bench, started)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can speak as somebody else")
def test_a_stranger_is_refused(bench: Bench) -> None:
    """Another user cannot reach the socket; one to whom the folders were opened is hung up on unheard."""
    started = bench.start(SLEEP)
    speak = (
        "import os, socket, sys\nos.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(60)\n"
        "s.sendall(bytes.fromhex(sys.argv[2])); print(len(s.recv(100)))"
    )
    cancel = frames.encode_json({"op": "cancel"}).hex()
    started.connect().close()
    argv = [sys.executable, "-I", "-S", "-c", speak, "control.sock", cancel]
    shut = subprocess.run(argv, cwd=started.run_dir, capture_output=True, text=True, check=False)
    assert "PermissionError" in shut.stderr
    started.run_dir.chmod(0o755)
    (started.run_dir / "control.sock").chmod(0o777)
    opened = subprocess.run(argv, cwd=started.run_dir, capture_output=True, text=True, check=False)
    assert opened.stdout.strip() == "0" or "ConnectionReset" in opened.stderr or "BrokenPipe" in opened.stderr
    reply = _status(started)
    assert reply["ok"] and not reply["ending"]
    _end(bench, started)


def test_nobody_answers_after_the_end(bench: Bench) -> None:
    """The socket goes with the command: a late client is told that there is no keeper, or hung up on."""
    started = bench.start(SLEEP)
    _end(bench, started)
    with (
        pytest.raises(KeeperError, match=r"no keeper answers|connection .* is closed|ended before it answered"),
        _late(started) as connection,
    ):
        connection.request({"op": "status"})


def _late(started: Started) -> KeeperConnection:
    return KeeperConnection.connect(started.run_dir)


_CANCEL_ANOTHER = """
import os, socket, sys
from debug_server.runner.keeper import frames
asked = socket.socket(socket.AF_UNIX)
os.chdir(sys.argv[1])  # the whole path is too long for an address
asked.connect("control.sock")
asked.settimeout(60)
try:
    asked.sendall(frames.encode_json({"op": "cancel", "message": "taken over"}))
    print("answered" if asked.recv(1 << 16) else "closed")
except OSError:
    print("closed")
"""


def test_a_command_is_no_client(bench: Bench) -> None:
    """One command of the same user cannot cancel another by its socket, however it got the path."""
    other = bench.start(SLEEP)
    eventually((other.run_dir / "control.sock").exists, what="the socket")
    tried = bench.run([sys.executable, "-c", _CANCEL_ANOTHER, str(other.run_dir)], env={"PYTHONPATH": str(ROOT)})
    assert bench.log(tried)["stdout"] == b"closed\n"
    assert _status(other)["ok"]
    _end(bench, other)
