"""Real programs in a real network namespace, whose only way out is the proxy."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from debug_server.runner.egress import policy
from debug_server.runner.egress.dialer import Outside
from debug_server.runner.egress.inside import Sockets
from debug_server.runner.egress.serve import serve
from debug_server.runner.egress.variables import variables
from tests.runner.egress.support import SECONDS, Server, lookup_in
from tests.runner.environment_support import make_wheel
from tests.running import ROOT

HERE = {"index.test": ["127.0.0.1"]}


class Quiet(SimpleHTTPRequestHandler):
    """Lists folders, which is what a simple index does."""

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[int]:
    """The port of a package index on the host's loopback that has the package tiny."""
    make_wheel(tmp_path / "index/simple/tiny", "tiny", "1.0")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "index")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@contextmanager
def in_namespace(
    chosen: policy.Policy, argv: list[str], environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, Any]]]]:
    """The program, with a proxy beside it, and the events of the proxy."""
    ours, theirs = socket.socketpair()
    control, end = os.pipe()
    events: list[dict[str, Any]] = []
    program = [sys.executable, "-m", "tests.runner.egress.in_namespace", str(theirs.fileno()), *argv]
    with (
        ours,
        subprocess.Popen(
            program,
            cwd=ROOT,
            env=environment,
            pass_fds=[theirs.fileno()],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        theirs.close()
        ours.settimeout(SECONDS)
        message, fds, _, _ = socket.recv_fds(ours, 4096, 3)
        if not fds:
            pytest.skip(f"no network namespace can be made here: {message.decode()}")
        outside = Outside(lookup=lookup_in(HERE))
        with Sockets.received(list(fds)) as sockets:
            thread = threading.Thread(
                target=serve,
                args=(sockets.tcp, sockets.dns, chosen, events.append, control),
                kwargs={"outside": outside},
                daemon=True,
            )
            thread.start()
            ours.sendall(b"\0")
            try:
                yield process, events
            finally:
                process.kill()
                os.close(end)
                thread.join(SECONDS)
                os.close(control)
    assert not thread.is_alive()


def run(chosen: policy.Policy, argv: list[str], **environment: str) -> tuple[str, int, list[dict[str, Any]]]:
    """Output, status and events of a program."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with in_namespace(chosen, argv, {**inherited, **environment}) as (process, events):
        output, _ = process.communicate(timeout=SECONDS * 2)
        return output, process.returncode, events


def indexes(port: int) -> policy.Policy:
    """The index, which this test has on the loopback of the host."""
    return policy.parse(["indexes", f"127.0.0.1:{port}"], indexes=[f"http://index.test:{port}/simple"])


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_packages_come_from_the_configured_index(tool: str, index: int, tmp_path: Path) -> None:
    """pip and uv install from an index that only the proxy can reach."""
    target = tmp_path / "target"
    command = [sys.executable, "-m", tool, *(["pip"] if tool == "uv" else []), "install", "--target", str(target)]
    command += ["--index-url", f"http://index.test:{index}/simple", "--no-cache-dir", "tiny==1.0"]
    if tool == "pip":
        if subprocess.run([*command[:3], "--version"], capture_output=True, check=False).returncode:
            pytest.skip("this environment has no pip")
        command += ["--trusted-host", "index.test", "--retries", "0"]
    output, status, events = run(indexes(index), command, UV_PYTHON=sys.executable)
    assert status == 0, (output, events)
    assert list(target.glob("tiny*"))
    assert events == []


def test_other_hosts_are_out_of_reach(index: int) -> None:
    """Directly there is no route; by the proxy there is a refusal that says what would allow it."""
    with Server() as server:
        program = f"""
import socket, urllib.request, urllib.error
for address in ("127.0.0.1", "192.0.2.1", "8.8.8.8"):
    try:
        socket.create_connection((address, {server.port}), timeout=60)
    except OSError as error:
        print(type(error).__name__, error.errno)
try:
    urllib.request.urlopen("http://evil.test/")
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
try:
    urllib.request.urlopen("https://evil.test/")
except urllib.error.URLError as error:
    print(error)
print(urllib.request.urlopen("http://index.test:{index}/simple/").status)
"""
        output, status, events = run(indexes(index), [sys.executable, "-I", "-c", program])
        assert status == 0, output
        assert server.received == []
    assert "ConnectionRefusedError" in output
    assert output.count("Error 101") == 2, output
    assert 'network.allow = ["evil.test:80"]' in output
    assert "403" in output
    assert output.endswith("200\n")
    assert [(event["host"], event["port"]) for event in events] == [("evil.test", 80), ("evil.test", 443)]


def test_dns_inside_answers_about_the_policy(index: int) -> None:
    """A server at 127.0.0.1 port 53 is there for programs that resolve a name themselves."""
    program = """
import socket, struct
def ask(name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(60)
        client.sendto(struct.pack("!HHHHHH", 1, 256, 1, 0, 0, 0) + labels + b"\\0\\0\\1\\0\\1", ("127.0.0.1", 53))
        return client.recv(512)
print(ask("index.test")[-4:], ask("secret.evil.test")[3] & 15)
"""
    output, status, events = run(indexes(index), [sys.executable, "-I", "-c", program])
    assert (status, output) == (0, f"{ip_address('127.0.0.1').packed!r} 3\n")
    assert [event["host"] for event in events] == ["secret.evil.test"]


def test_the_variables_are_in_both_cases() -> None:
    """Programs read either; the command's own servers are reached directly."""
    found = variables(3128)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert found[name] == found[name.lower()] == "http://127.0.0.1:3128"
    assert found["NO_PROXY"] == found["no_proxy"] == "localhost,127.0.0.1,::1"
