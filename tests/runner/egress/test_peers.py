"""The program behind a denial."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from debug_server.runner.egress.peers import program_of
from tests.runner.egress.support import get, listen, proxy


def test_the_program_that_asked_is_found() -> None:
    """By the socket of the report, among the processes of the command."""
    program = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()"
    with (
        listen() as listener,
        subprocess.Popen(
            [sys.executable, "-I", "-c", program, str(listener.getsockname()[1])], stdin=subprocess.PIPE
        ) as child,
    ):
        accepted, (host, port) = listener.accept()
        with accepted:
            found = program_of(f"{host}:{port}", [os.getpid(), child.pid])
            assert found is not None
            assert found["pid"] == child.pid
            assert found["program"].startswith("python")
            assert program_of(f"{host}:{port}", [os.getpid()]) is None
            assert program_of(f"{host}:1", [os.getpid(), child.pid]) is None
            assert program_of(f"{host}:{port}", []) is None
            child.communicate()


def test_a_datagram_has_a_program_too() -> None:
    """Questions to DNS come by UDP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        found = program_of("{}:{}".format(*udp.getsockname()), [os.getpid()])
        assert found is not None
        assert found["pid"] == os.getpid()


def test_it_is_there_when_a_denial_is_reported() -> None:
    """The report comes before the answer."""
    with proxy("good.test:80") as running, running.connect() as client:
        client.sendall(get("http://evil.test/"))
        assert client.recv(12) == b"HTTP/1.1 403"
        found = program_of(running.events[0]["peer"], [os.getpid()])
        assert found is not None
        assert found["pid"] == os.getpid()
