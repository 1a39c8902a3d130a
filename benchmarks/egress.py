"""A download through the filtering proxy against the same download without it, and what the proxy costs."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import processes
from benchmarks.figures import Fact, Figure, Result, Size, at_least, interleaved, milliseconds, timed
from tests.certificates import self_signed

_MIB = 1 << 20
_BLOCK = 1 << 18
_ROUNDS = {Size.FULL: 11, Size.QUICK: 5, Size.SMALLEST: 1}
_BYTES = {Size.FULL: 1024 * _MIB, Size.QUICK: 256 * _MIB, Size.SMALLEST: _MIB}
_SECONDS = 300

# A server that sends as many bytes as each connection asks for, as fast as it can.
_SERVER = f"""
import socket, ssl, sys
listener = socket.create_server(("127.0.0.1", 0))
if len(sys.argv) > 1:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    listener = context.wrap_socket(listener, server_side=True)
print(listener.getsockname()[1], flush=True)
block = memoryview(bytes({_BLOCK}))
while True:
    client, _ = listener.accept()
    with client:
        left = int(client.makefile("rb").readline())
        while left:
            left -= client.send(block[:min(left, {_BLOCK})])
"""

# The proxy in a process of its own, as beside a command; it ends with its stdin.
_PROXY = """
import resource, socket, sys, time
began = time.perf_counter()
from debug_server.runner.egress import policy
from debug_server.runner.egress.serve import serve
listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
print(listener.getsockname()[1], flush=True)
serve(listener, [], policy.parse([sys.argv[1]]), lambda event: None, 0)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime)
"""


def measure(size: Size) -> list[Result]:
    """The share of the direct speed, for bare bytes and for HTTPS; what a connection and the process cost."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder, _running(_SERVER) as (_, server):
        files = self_signed(Path(folder))
        with _running(_SERVER, str(files.cert), str(files.key)) as (_, secure):
            trusting = ssl.create_default_context(cafile=str(files.cert))
            results += [
                _race("bytes", size, server, lambda client: client),
                _race("https", size, secure, lambda client: trusting.wrap_socket(client, server_hostname="127.0.0.1")),
            ]
        with _running(_PROXY, f"127.0.0.1:{server}") as (proxy, port):
            plain, tunnelled = interleaved(
                lambda: timed(lambda: _download(_connect(server), 1)),
                lambda: timed(lambda: _download(_through(port, server), 1)),
                rounds=_ROUNDS[size] * 20,
            )
            resident = processes.resident_bytes(proxy.pid)
    facts = plain.facts("direct") | tunnelled.facts("proxied")
    return [
        *results,
        Figure(name="connection", value=milliseconds(tunnelled.p50 - plain.p50), unit="ms", facts=facts),
        Figure(name="resident", value=round(resident / _MIB, 2), unit="MiB"),
    ]


def _race(name: str, size: Size, server: int, speak: Callable[[socket.socket], socket.socket]) -> Result:
    total = _BYTES[size]
    with _running(_PROXY, f"127.0.0.1:{server}") as (proxy, port):
        direct, proxied = interleaved(
            lambda: timed(lambda: _download(speak(_connect(server)), total)),
            lambda: timed(lambda: _download(speak(_through(port, server)), total)),
            rounds=_ROUNDS[size],
        )
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        proxy.stdin.close()
        cpu = float(proxy.stdout.readline())
    facts: dict[str, Fact] = {
        "direct_mb_s": round(total / direct.p50 / 1e6, 1),
        "proxied_mb_s": round(total / proxied.p50 / 1e6, 1),
        "proxy_cpu_seconds_per_gib": round(cpu / (total * (_ROUNDS[size] + 1)) * 1024 * _MIB, 3),
    }
    facts |= direct.facts("direct") | proxied.facts("proxied")
    return Figure(name=name, value=round(direct.p50 / proxied.p50, 4), unit="direct", bar=at_least(0.7), facts=facts)


@contextmanager
def _running(*program: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A Python program that prints its port."""
    with subprocess.Popen(
        [sys.executable, "-c", *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)


def _through(proxy: int, server: int) -> socket.socket:
    client = _connect(proxy)
    client.sendall(f"CONNECT 127.0.0.1:{server} HTTP/1.1\r\nHost: 127.0.0.1:{server}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += client.recv(1)
    if b" 200 " not in answer:
        raise OSError(f"the proxy answers {answer!r}")
    return client


def _download(client: socket.socket, total: int) -> None:
    with client:
        client.sendall(f"{total}\n".encode())
        block = memoryview(bytearray(_BLOCK))
        received = 0
        while size := client.recv_into(block):
            received += size
    if received != total:
        raise OSError(f"{received} bytes came, not {total}")
