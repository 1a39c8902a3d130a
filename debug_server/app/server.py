"""The one server process: every surface over one service, from its lock to the last of its threads.

    lock -> store -> socket -> engine (adopts) -> first token -> serving --signal--> draining -> leaving -> exit
                                                                          503 to POSTs   streams end

What runs at the end goes on under its keepers, and the next server adopts it.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import logging
import math
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import debug_server
from debug_server.app.local import Local
from debug_server.app.parts import API, GATEWAY, NAMES, has_gateway, parts_of
from debug_server.errors import ConfigurationError, EngineBusyError
from debug_server.ports import Part
from debug_server.runner.live_commands import live_commands
from debug_server.runner.open_files import max_connections, raise_limit
from debug_server.service.locality import is_loopback
from debug_server.store import MetadataStore

if TYPE_CHECKING:
    import uvicorn

    from debug_server.config import ServerConfig
    from debug_server.surfaces.grpc import GrpcServer
    from debug_server.surfaces.http.app import HttpApp, Lifespan
    from debug_server.surfaces.http.connections import ConnectionLimits, Connections

_LOG = logging.getLogger(__name__)
_BACKLOG = 2048
_LEAST_SECONDS = 1.0  # to send what parts had to say at the end of a long grace of their own
_ENGINE_SECONDS = 1.0  # for what is about to end by itself
_FOLDER_MARK = "folder"  # in the artifacts folder
_SWITCH_SECONDS = 0.0005
_GRPC_SHARE = 4  # gRPC holds its connections itself: one in so many is its
ADDRESSES = "server.json"  # beside the server's lock, which says whether it is still true
OWN_SOCKET = "server.sock"  # beside the server's lock; HTTP for the server's own user


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where and how to serve."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: a free one
    grpc_port: int | None = 50051  # None: no gRPC
    tls_cert: Path | None = None
    tls_key: Path | None = None
    drain_seconds: float = 0.5  # how long POSTs are told to come again before the listener closes
    grace_seconds: float = 10.0  # from the signal to the exit
    parts: frozenset[str] = NAMES

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigurationError("TLS needs both --tls-cert and --tls-key")
        for path in (self.tls_cert, self.tls_key):
            if path is not None and not path.is_file():
                raise ConfigurationError(f"the TLS file {path} does not exist")

    @property
    def scheme(self) -> str:
        """http or https."""
        return "http" if self.tls_cert is None else "https"


def http_app(
    local: Local, *, lifespan: Lifespan | None = None, parts: Sequence[Part] = (), api: bool = True
) -> HttpApp:
    """The ASGI application over everything on this machine; serve it inside ``running(app)``."""
    from debug_server.surfaces.http import HttpSettings, create_http_app
    from debug_server.surfaces.mcp.http import McpHttp

    settings = HttpSettings(version=debug_server.__version__, api=api)
    app = create_http_app(
        local.service, metrics=local.telemetry.render, settings=settings, lifespan=lifespan, parts=parts
    )
    app.state.parts = local.service.health.parts = parts
    app.state.mcp = McpHttp(local.service)
    if api:
        app.router.routes.append(app.state.mcp.route())
    return app


@asynccontextmanager
async def running(app: HttpApp) -> AsyncGenerator[None, None]:
    """The lives of an application's parts."""
    async with AsyncExitStack() as lives:
        await lives.enter_async_context(app.state.mcp.running())
        for part in app.state.parts:
            await lives.enter_async_context(part.running())
        yield


def serve(local: Local, options: ServeOptions, *, announce: Callable[[str], None] | None = None) -> int:
    """Serve until a signal; returns the exit status. EngineBusyError when another process serves the same store."""
    raise_limit()  # before anything counts on it
    gc.disable()  # it would look at every module and class again and again: a quarter of the start
    try:
        with held_lock(local.server_lock_path, local.store.address):
            if local.shares_database:
                check_folder(local.store, local.settings.paths.artifacts_root)
            deadline = _serve(local, options, announce or _print)
    finally:
        gc.enable()
    _leave_threads(deadline)
    return 0


def _serve(local: Local, options: ServeOptions, say: Callable[[str], None]) -> float:
    first = _admit(local, options)
    # A command passes through four threads; the default of 5 ms would let each wait longer than the command runs.
    sys.setswitchinterval(_SWITCH_SECONDS)
    with _listening(options) as listener, _own_socket(local) as own:
        local.engine.start()
        try:
            run = _Run(local, options, listener, own)
            if first:  # not before the port is ours: whoever starts again with another is shown it then
                say(f"admin token, shown this once: {local.first_token.make()}")
            return asyncio.run(run.until_signal(say))
        finally:
            local.engine.stop(grace=_ENGINE_SECONDS)
            local.service.close()
            _say_what_carries_on(local, say)


def _say_what_carries_on(local: Local, say: Callable[[str], None]) -> None:
    count = len(live_commands(local.settings.paths.keepers_dir))
    noun, them = ("1 command carries", "it") if count == 1 else (f"{count} commands carry", "them")
    with suppress(OSError):  # whoever started us no longer reads
        if count:
            say(f"{noun} on; the next `debug-server serve` adopts {them}")


@contextmanager
def held_lock(path: Path, what: str) -> Iterator[None]:
    """Be the only server of a store for the block, by a lock that a dead process cannot hold; EngineBusyError else."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise EngineBusyError(
                f"a server (pid {holder}) already serves {what}: stop it, or name another database"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def check_folder(store: MetadataStore, root: Path) -> None:
    """ConfigurationError when the files of a shared database lie in another folder than ``root``.

    Of the servers of one folder the lock lets one live; those of two folders would each run commands whose logs the
    other cannot find.
    """
    path = root / _FOLDER_MARK
    found = path.read_text().strip() if path.exists() else ""
    mark = found or secrets.token_hex(8)
    if not found:  # before the database knows it: a crash in between leaves a mark that is claimed the next time
        path.write_text(f"{mark}\n")
    belongs = store.data_folder.claim(mark)
    if belongs != mark:
        if not found:
            path.unlink()
        raise ConfigurationError(
            f"the database {store.address} belongs to another folder than {root.absolute()}: serve with that one "
            "(paths.artifacts), or use another database. If that folder is lost or was copied here, write "
            f"{belongs} into {path}"
        )


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _admit(local: Local, options: ServeOptions) -> bool:
    """Refuse an open door; returns whether there is no key yet."""
    if GATEWAY in options.parts and has_gateway(local):
        from debug_server.gateway import refuse_insecure

        refuse_insecure(local.gateway_config.value, options.host)
    if not local.first_token.is_missing():
        return False
    if not is_loopback(options.host) and options.tls_cert is None:
        raise ConfigurationError(
            f"host {options.host!r} can be reached from other machines and there is no token yet: make one with "
            "`debug-server token create`, or give --tls-cert and --tls-key, or serve on 127.0.0.1"
        )
    return True


@contextmanager
def _listening(options: ServeOptions) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        listener = socket.create_server((options.host, options.port), family=family, backlog=_BACKLOG)
        # Inherited by the connections: a head and its body are two writes, and 40 ms would pass between them.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a port is a number from 0 to 65535"
        raise ConfigurationError(
            f"cannot listen on {options.host} port {options.port} ({reason}): choose another --host or --port"
        ) from error
    with listener:
        yield listener


def _own_socket(local: Local) -> AbstractContextManager[list[socket.socket]]:
    from debug_server.surfaces.http.unix_socket import unix_listener

    return unix_listener(local.server_lock_path.with_name(OWN_SOCKET))


def uvicorn_config(app: HttpApp, options: ServeOptions, connections: Connections | None = None) -> uvicorn.Config:
    """How the HTTP server treats its connections."""
    import uvicorn

    from debug_server.surfaces.http.connections import ConnectionLimits, Connections
    from debug_server.surfaces.http.hosting import MAX_FRAME, protocols

    connections = connections or Connections(ConnectionLimits(most=max_connections()))
    return uvicorn.Config(
        app,
        **protocols(connections),
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",  # our own gate logs what goes wrong, with the request's id
        access_log=False,  # it would show the query, and so a WebSocket's token
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=math.ceil(connections.limits.idle_seconds),
        ws_max_size=MAX_FRAME,
        ws_per_message_deflate=False,  # a window for each of thousands of watchers
        ws_ping_interval=20.0,
        ws_ping_timeout=60.0,
        timeout_graceful_shutdown=max(1, round(options.grace_seconds - options.drain_seconds)),
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )


def connection_limits(settings: ServerConfig, *, grpc: bool) -> tuple[int, ConnectionLimits]:
    """How many connections are gRPC's, and the limits of HTTP's, which has the others."""
    from debug_server.surfaces.http.connections import ConnectionLimits

    room = max_connections()
    most = room if settings.max_connections is None else min(room, settings.max_connections)
    of_grpc = max(1, most // _GRPC_SHARE) if grpc else 0
    limits = ConnectionLimits(
        most=max(1, most - of_grpc),
        head_seconds=settings.head_timeout,
        body_seconds=settings.body_timeout,
        idle_seconds=settings.keep_alive,
    )
    return of_grpc, limits


class _Run:
    """One life of the event loop."""

    def __init__(self, local: Local, options: ServeOptions, listener: socket.socket, own: list[socket.socket]) -> None:
        from debug_server.surfaces.http.connections import Connections
        from debug_server.surfaces.http.hosting import HttpServer

        self._local = local
        self._options = options
        self._listener = listener
        self._own = own
        self._parts = parts_of(local, options.parts)
        self._app = http_app(local, parts=self._parts, api=API in options.parts)
        self._signalled_at = 0.0
        self._live = asyncio.Event()  # every part's life has begun
        self._draining: asyncio.Task[None] | None = None
        self._grpc_connections, limits = connection_limits(local.settings.server, grpc=options.grpc_port is not None)
        connections = Connections(limits)
        config = uvicorn_config(self._app, options, connections)
        try:
            config.load()
        except OSError as error:  # of which ssl's errors are a kind
            raise ConfigurationError(
                f"the TLS files {options.tls_cert}, {options.tls_key} cannot be used: {error}"
            ) from error
        self._server = HttpServer(config, connections)
        gc.freeze()
        gc.enable()

    async def until_signal(self, say: Callable[[str], None]) -> float:
        """Serve; returns by when the process must be gone, on the monotonic clock."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        host, port = self._listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        say(f"serving on {self._options.scheme}://{shown}:{port}")
        serving = loop.create_task(self._serve())
        grpc = None
        try:
            if self._options.grpc_port is not None:
                grpc = await self._start_grpc(self._options.grpc_port)
                self._note_addresses(f"{self._options.scheme}://{shown}:{port}", grpc.port)
                if await self._parts_live(serving):
                    say(f"serving gRPC on port {grpc.port}")
        finally:
            self._server.should_exit |= grpc is None and self._options.grpc_port is not None
            await serving
            if grpc is not None:
                await grpc.stop(max(0.0, self._deadline() - time.monotonic()) / 2)
        return self._deadline()

    def _note_addresses(self, http: str, grpc_port: int) -> None:
        """For command lines of this user: they must not send a token to a port that only looks like ours."""
        path = self._local.server_lock_path.with_name(ADDRESSES)
        path.write_text(json.dumps({"pid": os.getpid(), "grpc_port": grpc_port, "http": http}))

    async def _serve(self) -> None:
        async with running(self._app):
            self._live.set()
            await self._server.serve(sockets=[self._listener, *self._own])

    async def _parts_live(self, serving: asyncio.Task[None]) -> bool:
        """What is announced can act: an event for an example repository that is still being made would be skipped."""
        live = asyncio.ensure_future(self._live.wait())
        await asyncio.wait([live, serving], return_when=asyncio.FIRST_COMPLETED)
        live.cancel()
        return self._live.is_set()

    async def _start_grpc(self, port: int) -> GrpcServer:
        """After HTTP: the library alone takes a third of a second to load."""
        module = await asyncio.to_thread(import_module, "debug_server.surfaces.grpc")
        cert, key = self._options.tls_cert, self._options.tls_key
        tls = module.Tls(certificate=cert.read_bytes(), key=key.read_bytes()) if cert and key else None
        settings = self._local.settings.server
        bounds = module.ConnectionBounds(
            most=self._grpc_connections,
            handshake_seconds=settings.head_timeout,
            idle_seconds=settings.keep_alive,
            stranger_seconds=settings.keep_alive,
        )
        found = [await asyncio.to_thread(part.grpc_services) for part in self._parts]
        more = {name: handler for services in found for name, handler in services.items()}
        server: GrpcServer = module.build_server(
            self._local.service,
            host=self._options.host,
            port=port,
            tls=tls,
            more=more,
            bounds=bounds,
        )
        await server.start()
        return server

    def _signalled(self) -> None:
        if self._signalled_at:
            self._server.force_exit = self._server.should_exit = True
            return
        self._signalled_at = time.monotonic()
        _LOG.info("draining", extra={"grace_seconds": self._options.grace_seconds})
        self._local.service.drain()
        for part in self._parts:
            part.drain()
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        """Answer, with refusals mostly, until every part has finished what it had under way."""
        try:
            pause = asyncio.sleep(self._options.drain_seconds)
            await asyncio.gather(pause, *(part.drained() for part in self._parts))
        finally:
            self._leave()

    def _deadline(self) -> float:
        """The server's grace is over; a part that took all of it, or more, leaves the others a moment."""
        return max(self._signalled_at + self._options.grace_seconds, time.monotonic() + _LEAST_SECONDS)

    def _leave(self) -> None:
        self._app.state.followers.leave()
        self._server.config.timeout_graceful_shutdown = math.ceil(self._deadline() - time.monotonic())
        self._server.should_exit = True


def _leave_threads(deadline: float) -> None:
    """Wait for calls that are under way, but not for one that takes minutes: everything durable is on the disk."""
    left = [item for item in threading.enumerate() if not item.daemon and item is not threading.main_thread()]
    for item in left:
        item.join(max(0.0, deadline - time.monotonic()))
    if busy := [item.name for item in left if item.is_alive()]:
        _LOG.warning("threads_left", extra={"threads": busy})
        with suppress(OSError):
            sys.stdout.flush()
        logging.shutdown()
        os._exit(0)
