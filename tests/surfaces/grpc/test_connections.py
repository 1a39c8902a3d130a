"""Connections to the gRPC port that say nothing: they are ended, and keep nobody out for longer than their timeout."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.running import eventually, lasting_port
from tests.servers import unmount_below
from tests.surfaces.http.serving import SECONDS, Process, answered, open_local
from tests.surfaces.silent_connections import silent_connections

FILES = 256
COUNT = 300
IDLE_SECONDS = 3.0
SILENT = b""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # and empty settings: a handshake


@contextlib.contextmanager
def _serving(root: Path, port: int) -> Iterator[Process]:
    """A server that may open few files and ends idle connections soon."""
    bounds = {"head_timeout": IDLE_SECONDS, "keep_alive": IDLE_SECONDS}
    options = {"open_files": [FILES, FILES], "log": str(root / "server.log"), "server": bounds, "grpc_port": port}
    process = Process(root, options=json.dumps(options))
    try:
        yield process.started()
    finally:
        process.close()
        unmount_below(root)


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _call(port: int) -> int:
    """A call over a connection of its own, tried until it is answered."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        ask = health_pb2_grpc.HealthStub(channel).Check

        def reply() -> Any:
            try:
                return ask(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=SECONDS)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE  # its connection was taken for one of the crowd
                return None

        return int(eventually(reply, what="an answer").status)


def _get(process: Process, headers: dict[str, str]) -> httpx.Response | None:
    """The answer to a request; None when this test was kept waiting for longer than a connection may be idle."""
    began = time.monotonic()
    try:
        return httpx.get(f"{process.url}/whoami", headers=headers, timeout=SECONDS)
    except httpx.TransportError:
        assert time.monotonic() - began >= IDLE_SECONDS
        return None


@pytest.mark.usefixtures("nothing_left")
def test_a_crowd_at_the_grpc_port_keeps_nobody_out(tmp_path: Path) -> None:
    """With 256 files, 300 connections that send nothing, or a handshake and nothing more, stop neither HTTP nor, for
    longer than their timeout, gRPC; all of them are ended, and the log stays small."""
    with open_local(tmp_path) as local:
        secret = local.store.tokens.create("tester", ["admin"])[1]
    port = lasting_port()
    with _serving(tmp_path, port) as process:
        assert _call(port) == health_pb2.HealthCheckResponse.SERVING
        headers = {"Authorization": f"Bearer {secret}"}
        for first in (SILENT, PREFACE):
            with silent_connections(port, COUNT, first) as silent:
                for _ in range(10):
                    answered(eventually(lambda: _get(process, headers), what="an answer"), 200)
                assert _call(port) == health_pb2.HealthCheckResponse.SERVING
                eventually(lambda: all(map(_is_closed, silent)), SECONDS, "the end of every idle connection")
        assert (tmp_path / "server.log").stat().st_size < 200_000
        process.terminate()
        assert process.output()[0] == 0
