"""Followers and requests over connections that are cut and a server that is killed: no gap, no repeat."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import random
import selectors
import socket
import sys
import threading
from pathlib import Path

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.client.following import LineSplitter
from tests.repositories import make_repository
from tests.servers import ServerProcess, serving

# Bytes of a known sequence, at a pace that lets a server die in between.
WRITER = """
import os, random, time
source, total = random.Random(5), 0
while total < {size}:
    data = source.randbytes(source.randrange(1, 40000))
    os.write(1, data)
    total += len(data)
    time.sleep({pause})
"""


class CuttingProxy:
    """A TCP proxy before a server. With ``cut`` it closes each connection after at most 1 MiB of the server's bytes."""

    def __init__(self, server: ServerProcess, cut: random.Random | None = None) -> None:
        self._server = server
        self._random = cut
        self.cuts = 0
        self.drop_next_answer = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def base_url(self) -> str:
        """What to give to a client."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                backend = socket.create_connection(("127.0.0.1", self._server.port), timeout=100)
            except OSError:
                return  # the server is away: the client sees a connection that closes
            with backend, contextlib.suppress(OSError):
                self._relay(client, backend)

    def _relay(self, client: socket.socket, backend: socket.socket) -> None:
        left = self._random.randrange(1, 1 << 20) if self._random is not None else None
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, backend)
            selector.register(backend, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if not data:
                        return
                    if key.fileobj is backend:
                        if self.drop_next_answer.is_set():
                            self.drop_next_answer.clear()
                            self.cuts += 1
                            return
                        if left is not None:
                            data, left = data[:left], left - len(data)
                    key.data.sendall(data)
                    if left is not None and left <= 0:
                        self.cuts += 1
                        return


def writer(size: int, pause: float) -> list[str]:
    """A program that writes a bit more than ``size`` bytes."""
    return [sys.executable, "-I", "-S", "-c", WRITER.format(size=size, pause=pause)]


def expected(size: int) -> str:
    """The digest of what it writes."""
    source, total, digest = random.Random(5), 0, hashlib.sha256()
    while total < size:
        data = source.randbytes(source.randrange(1, 40000))
        digest.update(data)
        total += len(data)
    return digest.hexdigest()


def test_a_follower_survives_a_wire_that_breaks(server: ServerProcess, repository: Path) -> None:
    """8 MiB followed over connections that break at random places arrive once, whole and in order."""
    size, digest, offset = 8 << 20, hashlib.sha256(), 0
    with (
        CuttingProxy(server, random.Random(1)) as proxy,
        DebugServerClient(base_url=server.base_url, token=server.token) as direct,
        DebugServerClient(base_url=proxy.base_url, token=server.token) as client,
    ):
        run = direct.start_run("project", "main", writer(size, 0.0))
        for piece in client.follow_log(run.command.id):
            assert piece.offset == offset
            offset = piece.end
            digest.update(piece.data)
        assert proxy.cuts > 5
        assert digest.hexdigest() == expected(size)
        assert offset == direct.get_command(run.command.id).log_bytes


def test_followers_survive_servers_that_are_killed(tmp_path: Path, nothing_left: None) -> None:
    """Over three kills of the server both clients see every byte once, and the command ends as if nothing happened."""
    size = 3 << 20
    with serving(tmp_path / "server") as server, CuttingProxy(server) as proxy:
        path = make_repository(tmp_path / "project")
        with DebugServerClient(base_url=proxy.base_url, token=server.token) as client:
            client.register_repository("project", str(path))
            run = client.start_run("project", "main", [*writer(size, 0.02)])
            asyncio.run(_follow_and_kill(server, proxy.base_url, run.command.id, size))
            assert client.wait_command(run.command.id).status == "succeeded"


async def _follow_and_kill(server: ServerProcess, base_url: str, command_id: int, size: int) -> None:
    async with AsyncDebugServerClient(base_url=base_url, token=server.token) as client:
        kills = asyncio.create_task(_kill_three_times(server))
        with DebugServerClient(base_url=base_url, token=server.token) as other:
            twin = asyncio.create_task(asyncio.to_thread(lambda: _collect(other, command_id)))
            pieces = [piece async for piece in client.follow_log(command_id)]
            await kills
            whole = b"".join(piece.data for piece in pieces)
            assert hashlib.sha256(whole).hexdigest() == expected(size)
            assert await twin == whole
        assert pieces[0].offset == 0
        assert all(one.end == two.offset for one, two in itertools.pairwise(pieces))
        assert pieces[-1].end == (await client.get_command(command_id)).log_bytes >= size


def _collect(client: DebugServerClient, command_id: int) -> bytes:
    return b"".join(piece.data for piece in client.follow_log(command_id))


async def _kill_three_times(server: ServerProcess) -> None:
    for _ in range(3):
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)


def test_a_lost_answer_does_not_run_a_command_twice(server: ServerProcess, repository: Path) -> None:
    """A submission whose answer never arrives is sent again under its key: there is one command, and it is returned."""
    with (
        CuttingProxy(server) as proxy,
        DebugServerClient(base_url=proxy.base_url, token=server.token) as client,
    ):
        session = client.open_session("project", "main")
        proxy.drop_next_answer.set()
        command = client.submit_command(session.id, ["true"])
        assert proxy.cuts == 1
        assert [item.id for item in client.list_commands(session.id)] == [command.id]
        proxy.drop_next_answer.set()
        assert len(client.fork_session(session.id)) == 1
        assert len([item for item in client.list_sessions(limit=1000) if item.metadata.get("forked_from")]) == 1
        client.close_session(session.id)


def test_lines_are_whole_or_not_at_all() -> None:
    """LineSplitter come out of pieces cut at any place, once each; an unfinished one never does."""
    body = b"one\n\xe2\x80\xa8two\r\x85\n\nthree\nunfin"
    for step in range(1, len(body) + 1):
        lines = LineSplitter()
        found = [line for start in range(0, len(body), step) for line in lines.feed(body[start : start + step])]
        assert found == [b"one", b"\xe2\x80\xa8two\r\x85", b"three"]
