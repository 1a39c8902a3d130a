"""What a slow or hostile client costs: its own connections, and nothing else."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import random
import socket
import threading
from ipaddress import ip_address

from debug_server.runner.egress import policy
from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.loop import Task
from debug_server.runner.egress.names import Address
from debug_server.runner.egress.serve import serve
from tests.runner.egress.support import OK, SECONDS, Server, get, listen, proxy, reachable, read_all
from tests.running import eventually

MANY = 10_000


def test_thousands_of_connections_without_a_request() -> None:
    """Of 10,000 connections that say nothing the oldest make room, and a request among them is answered."""
    with reachable(OK) as (running, server):
        idle: list[socket.socket] = []
        try:
            for number in range(MANY):
                client = socket.create_connection(("127.0.0.1", running.port), timeout=SECONDS)
                client.send(b"GET http://good.test")
                idle.append(client)
                if len(idle) > 400:
                    idle.pop(0).close()
                if number % 2500 == 0:
                    assert running.ask(get(f"http://good.test:{server.port}/")).endswith(b"ok")
            assert running.ask(get(f"http://good.test:{server.port}/")).endswith(b"ok")
        finally:
            for client in idle:
                client.close()


def test_ended_connections_leave_nothing() -> None:
    """Neither tasks nor open files, however a connection ended."""

    def tasks() -> int:
        found = [each for each in gc.get_objects() if isinstance(each, Task)]
        return sum(inspect.getgeneratorstate(each.steps) != inspect.GEN_CLOSED for each in found)

    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with reachable(OK) as (running, server):
        url = f"http://good.test:{server.port}/"
        running.ask(b"x\r\n\r\n")  # from now on it runs
        eventually(lambda: tasks() == 3)
        before = files()
        for _ in range(20):
            assert running.ask(get(url)).endswith(b"ok")
            assert b" 403 " in running.ask(get("http://evil.test/"))
            with running.tunnel(f"good.test:{server.port}"):
                pass
            with running.connect() as client:
                client.sendall(get(url)[:-2])
            with running.connect() as client:
                client.sendall(b"POST" + get(url, more="Content-Length: 9\r\n")[3:])
        eventually(lambda: tasks() == 3 and files() <= before)


def test_open_tunnels_are_bounded() -> None:
    """Beyond the limit a connection is closed at once; those that are open stay, and free room is used again."""
    with Server() as server, proxy(f"127.0.0.1:{server.port}", bounds=Bounds(connections=3)) as running:
        target = f"127.0.0.1:{server.port}"
        tunnels = [running.tunnel(target) for _ in range(3)]
        assert running.ask(get(f"http://{target}/")) == b""
        for tunnel in tunnels:
            tunnel.sendall(b"x")
            assert tunnel.recv(1) == b"x"
        tunnels.pop().close()

        def reopened() -> bool:
            with running.connect() as client, contextlib.suppress(OSError):
                client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
                return client.recv(12) == b"HTTP/1.1 200"
            return False

        eventually(reopened)
        for tunnel in tunnels:
            tunnel.close()


def test_a_head_that_never_ends_is_given_up() -> None:
    """By time, and by size."""
    with proxy("good.test:80", bounds=Bounds(head_seconds=0.1)) as running:
        assert b" 408 " in running.ask(b"GET http://good.test/ HTTP/1.1\r\nX:")
    with proxy("good.test:80", bounds=Bounds(head_bytes=4096)) as running:
        for piece in (b"x" * 70_000, b"GET http://good.test/ HTTP/1.1\r\n" + b"X: y\r\n" * 700 + b"\r\n"):
            with running.connect() as client, contextlib.suppress(OSError):
                client.sendall(piece)
                assert b" 431 " in read_all(client)


def test_a_hello_that_never_ends_is_given_up() -> None:
    """A client that trickles its ClientHello is cut off."""
    with Server() as server, proxy(f"127.0.0.1:{server.port}", bounds=Bounds(hello_seconds=0.1)) as running:
        with running.tunnel(f"127.0.0.1:{server.port}") as client:
            client.sendall(b"\x16\x03\x01\x02\x00\x01")
            assert read_all(client) == b"\x15\x03\x03\x00\x02\x02\x31"
        assert bytes(server.received[0]) == b""
        assert [event["why"] for event in running.events] == ["the ClientHello did not come in time"]


def test_an_idle_tunnel_is_closed() -> None:
    """Without a byte in either direction it ends."""
    with (
        Server() as server,
        proxy(f"127.0.0.1:{server.port}", bounds=Bounds(idle_seconds=0.2)) as running,
        running.tunnel(f"127.0.0.1:{server.port}") as client,
    ):
        assert read_all(client) == b""


def test_a_client_that_does_not_read_delays_nobody() -> None:
    """Its tunnel fills up; others go on, and the proxy ends at once."""
    with Server() as server, proxy(f"127.0.0.1:{server.port}") as running:
        target = f"127.0.0.1:{server.port}"
        with running.tunnel(target) as deaf, running.tunnel(target) as other:
            deaf.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    deaf.send(bytes(1 << 16))
            other.sendall(b"hello")
            assert other.recv(5) == b"hello"


def test_garbage_costs_only_its_connection() -> None:
    """Random bytes are answered with 400 or dropped."""
    chance = random.Random(1)
    with reachable(OK) as (running, server):
        for size in (1, 10, 100, 5000):
            with running.connect() as client, contextlib.suppress(OSError):
                client.sendall(chance.randbytes(size) + b"\r\n\r\n")
                assert read_all(client)[9:12] in (b"400", b"")
        assert running.ask(get(f"http://good.test:{server.port}/")).endswith(b"ok")


def test_reports_are_bounded_and_counted() -> None:
    """A thousand denials are a few events, whose counts add up to all of them."""
    bounds = Bounds(reports=5, report_kinds=10)
    with proxy("good.test:80", bounds=bounds) as running:
        for number in range(200):
            assert b" 403 " in running.ask(get(f"http://host{number % 20}.test/"))
        during = len(running.events)
    assert sum(event["count"] for event in running.events) == 200
    assert len(running.events) <= during + 11


def test_the_end_waits_for_nobody() -> None:
    """With lookups that hang, tunnels and half requests, the proxy ends once its control pipe is closed."""
    release = threading.Event()

    def lookup(name: str) -> list[Address]:
        release.wait()
        return [ip_address("192.0.2.1")]

    with (
        Server() as server,
        contextlib.ExitStack() as stack,
        proxy("slow.test:80", f"127.0.0.1:{server.port}", lookup=lookup) as running,
    ):
        for _ in range(6):
            stack.enter_context(running.connect()).sendall(get("http://slow.test/"))
            stack.enter_context(running.tunnel(f"127.0.0.1:{server.port}"))
            stack.enter_context(running.connect()).sendall(b"GET")
    release.set()


def test_a_killed_proxy_costs_the_network_alone() -> None:
    """Its clients see the end of their connections, and new ones are refused once its sockets are gone."""
    with Server() as server:
        listener = listen()
        control, ours = os.pipe()
        chosen = policy.parse([f"127.0.0.1:{server.port}"])
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            try:
                serve(listener, [], chosen, lambda _: None, control)
            finally:
                os._exit(0)
        port = listener.getsockname()[1]
        listener.close()
        os.close(control)
        try:
            client = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
            client.sendall(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert client.recv(12) == b"HTTP/1.1 200"
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(ours)
        with client:
            read_all(client)
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
            raise AssertionError("somebody listens still")
