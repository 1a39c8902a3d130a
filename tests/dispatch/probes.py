"""Probes that misbehave, and a service that our proto does not know, each on a port of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager, suppress
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection

from tests.running import ROOT

Answer = Callable[[bytes], bytes]
SYNC_REPO = "kanban.ProbeSync", "SyncRepo"


@contextmanager
def serving(service: str, methods: Mapping[str, Answer], pool: Any = None) -> Iterator[int]:
    """A gRPC server whose methods take and give bytes; with a pool it describes itself by reflection."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    handlers = {name: grpc.unary_unary_rpc_method_handler(_plain(answer)) for name, answer in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    if pool is not None:
        reflection.enable_server_reflection((service, reflection.SERVICE_NAME), server, pool)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


def _plain(answer: Answer) -> Callable[[bytes, Any], bytes]:
    return lambda request, _: answer(request)


@contextmanager
def strange_probe(behaviour: bytes | str) -> Iterator[tuple[int, list[bytes]]]:
    """A probe that answers with these bytes, ``never``, or ``dies`` during the call; yields its port and the calls."""
    calls: list[bytes] = []
    if behaviour == "dies":
        with _dying_probe(calls) as port:
            yield port, calls
        return
    over = threading.Event()

    def answer(request: bytes) -> bytes:
        calls.append(request)
        if isinstance(behaviour, bytes):
            return behaviour
        over.wait(100)
        return b""

    service, method = SYNC_REPO
    with serving(service, {method: answer}) as port:
        try:
            yield port, calls
        finally:
            over.set()


@contextmanager
def _dying_probe(calls: list[bytes]) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-m", __name__], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        calls += process.communicate(timeout=60)[0].splitlines()


def _die(request: bytes) -> bytes:
    sys.stdout.buffer.write(b"called\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


@contextmanager
def not_grpc() -> Iterator[int]:
    """A server that speaks another protocol."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer, suppress(OSError):  # one that has left meanwhile
                    peer.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@contextmanager
def notebook() -> Iterator[int]:
    """``acme.Notebook``: ``Add`` counts a repository's notes, ``Watch`` streams; known by reflection only."""
    file = descriptor_pb2.FileDescriptorProto(name="acme.proto", package="acme", syntax="proto3")
    text, number = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_INT32
    for name, fields in {"Note": {"repo_name": text, "count": number}, "Total": {"said": text}}.items():
        message = file.message_type.add(name=name)
        for place, (field, kind) in enumerate(fields.items(), 1):
            message.field.add(name=field, number=place, type=kind, label=1)
    service = file.service.add(name="Notebook")
    service.method.add(name="Add", input_type=".acme.Note", output_type=".acme.Total")
    service.method.add(name="Watch", input_type=".acme.Note", output_type=".acme.Total", server_streaming=True)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kinds = message_factory.GetMessageClassesForFiles(["acme.proto"], pool)

    def add(request: bytes) -> bytes:
        note: Any = kinds["acme.Note"].FromString(request)
        answer: Any = kinds["acme.Total"]
        return bytes(answer(said=f"{note.count} notes of {note.repo_name}").SerializeToString())

    with serving("acme.Notebook", {"Add": add}, pool) as port:
        yield port


if __name__ == "__main__":
    with serving(SYNC_REPO[0], {SYNC_REPO[1]: _die}) as dying:
        print(dying, flush=True)  # noqa: T201
        signal.pause()
