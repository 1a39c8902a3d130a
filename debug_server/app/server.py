"""The server process: every surface over one service, from its lock to its exit.

    lock -> store -> socket -> engine (adopts) -> first token -> serving --signal--> draining -> closing -> exit
                                                                          503 to POSTs   streams end

Commands that still run at the exit continue under their keepers, and the next server adopts them.
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
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import debug_server
from debug_server.app.local import Local
from debug_server.app.parts import API, GATEWAY, NAMES, build_parts, has_gateway
from debug_server.errors import ConfigurationError, EngineBusyError
from debug_server.ports import Part
from debug_server.runner.open_files import max_connections, raise_limit
from debug_server.service.background import continuing
from debug_server.service.followers import max_followers
from debug_server.service.request_origin import is_loopback
from debug_server.sockets.ports import bind_failure, reserve_port
from debug_server.store import MetadataStore

if TYPE_CHECKING:
    import uvicorn

    from debug_server.config import ServerConfig
    from debug_server.surfaces.grpc import GrpcServer
    from debug_server.surfaces.http.app import HttpApp, Lifespan
    from debug_server.surfaces.http.connections import ConnectionLimits, Connections

_LOG = logging.getLogger(__name__)
_BACKLOG = 2048
_MIN_CLOSE_SECONDS = 1.0  # minimum time to send last messages, if a part used up the grace period
_ENGINE_SECONDS = 1.0  # for commands that are about to end
_FOLDER_MARK = "folder"  # in the artifacts folder
_SWITCH_SECONDS = 0.0005
_PID_LENGTH = 16
_GRPC_SHARE = 4  # gRPC counts its connections separately: it gets 1/4 of the total
ADDRESSES = "server.json"  # beside the server's lock; valid only while the lock is held
OWN_SOCKET = "server.sock"  # beside the server's lock; HTTP for the server's own user


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where and how to serve."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: a free one
    grpc_port: int | None = 50051  # None: no gRPC
    tls_cert: Path | None = None
    tls_key: Path | None = None
    drain_seconds: float = 0.5  # how long POSTs get 503 with Retry-After before the listener closes
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
    """The ASGI application of this machine; serve it inside ``running(app)``."""
    from debug_server.surfaces.http import HttpSettings, create_http_app
    from debug_server.surfaces.mcp.http import McpHttp

    settings = HttpSettings(version=debug_server.__version__, api=api)
    app = create_http_app(
        local.service, metrics=local.telemetry.render, settings=settings, lifespan=lifespan, parts=parts
    )
    local.service.health.parts = parts
    app.state.mcp = McpHttp(local.service)
    if api:
        app.router.routes.append(app.state.mcp.route())
    return app


@asynccontextmanager
async def running(app: HttpApp) -> AsyncGenerator[None, None]:
    """Run the parts of an application during the block."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.state.mcp.running())
        for part in app.parts:
            await stack.enter_async_context(part.running())
        yield


def serve(local: Local, options: ServeOptions, *, announce: Callable[[str], None] | None = None) -> int:
    """Serve until a signal; returns the exit status. EngineBusyError if another process serves the same store."""
    raise_limit()  # before the limits on connections are computed
    gc.disable()  # repeated collections would take a quarter of the start-up time
    try:
        with held_lock(local.server_lock_path, local.store.address):
            if local.shares_database:
                check_folder(local.store, local.settings.paths.artifacts_root)
            deadline = _serve(local, options, announce or _print)
    finally:
        gc.enable()
    _wait_for_threads(deadline)
    return 0


def _serve(local: Local, options: ServeOptions, announce: Callable[[str], None]) -> float:
    needs_first_token = _needs_first_token(local, options)
    # A command passes through four threads; the default of 5 ms would let each wait longer than the command runs.
    sys.setswitchinterval(_SWITCH_SECONDS)
    with _listening(options) as listener, _reserved_grpc_port(options) as reserved, _own_socket(local) as unix:
        local.engine.start()
        try:
            run = _ServerRun(local, options, _Sockets(http=listener, unix=unix, grpc=reserved))
            gc.freeze()  # objects of the start live as long as the server
            gc.enable()
            if needs_first_token:  # after both ports are bound: a failed start must not use up the message
                announce(f"admin token, shown only once: {local.first_token.create()}")
            return asyncio.run(run.until_signal(announce))
        finally:
            local.engine.stop(grace=_ENGINE_SECONDS)
            local.service.close()
            _report_running_commands(local, announce)


def _report_running_commands(local: Local, announce: Callable[[str], None]) -> None:
    with suppress(OSError):  # stdout is closed
        if sentence := continuing(local.keepers_dir):
            announce(sentence)


@contextmanager
def held_lock(path: Path, what: str) -> Iterator[None]:
    """Hold the lock of the store's only server during the block; EngineBusyError if another process holds it."""
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
        # Over the last one's, of the same length: an empty file would need space, and the disk may be full.
        os.pwrite(descriptor, f"{os.getpid()}\n".ljust(_PID_LENGTH).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def check_folder(store: MetadataStore, root: Path) -> None:
    """ConfigurationError if a shared database belongs to a data folder other than ``root``.

    The lock allows one server for each folder; servers of two folders could not read the logs of each other's commands.
    """
    path = root / _FOLDER_MARK
    found = path.read_text().strip() if path.exists() else ""
    mark = found or secrets.token_hex(8)
    if not found:  # before the database has it: after a crash in between, the next start claims the mark
        path.write_text(f"{mark}\n")
    stored = store.data_folder.claim(mark)
    if stored != mark:
        if not found:
            path.unlink()
        raise ConfigurationError(
            f"the database {store.address} belongs to a data folder other than {root.absolute()}: use that folder "
            "(paths.artifacts), or another database. If that folder is lost or was copied here, write "
            f"{stored} into {path}"
        )


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _needs_first_token(local: Local, options: ServeOptions) -> bool:
    """Whether no token exists yet; ConfigurationError if that, or the gateway, is unsafe on this address."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sockets:
    """What the server listens on."""

    http: socket.socket
    unix: list[socket.socket]  # for the server's own user; empty where the file system has no sockets
    grpc: socket.socket | None  # holds the port until the library binds it; None: no gRPC, or a free port


def _listening(options: ServeOptions) -> socket.socket:
    listener = _listen(options.host, options.port, f"{options.host} port", "choose another --host or --port")
    # Inherited by the connections: without it, a response in two writes may be delayed by 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _reserved_grpc_port(options: ServeOptions) -> AbstractContextManager[socket.socket | None]:
    if not options.grpc_port:
        return nullcontext()
    what = f"cannot listen on {options.host} gRPC port {options.grpc_port}"
    remedy = "choose another --grpc-port, or give --no-grpc"
    return reserve_port(options.host, options.grpc_port, what=what, remedy=remedy)


def _listen(host: str, port: int, what: str, remedy: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"cannot listen on {what} {port} ({bind_failure(error)}): {remedy}") from error


def _own_socket(local: Local) -> AbstractContextManager[list[socket.socket]]:
    from debug_server.surfaces.http.unix_socket import unix_listener

    return unix_listener(local.server_lock_path.with_name(OWN_SOCKET))


def uvicorn_config(app: HttpApp, options: ServeOptions, connections: Connections | None = None) -> uvicorn.Config:
    """The configuration of the HTTP server."""
    import uvicorn

    from debug_server.surfaces.http.connections import ConnectionLimits, Connections
    from debug_server.surfaces.http.uvicorn_server import MAX_FRAME, protocols

    if connections is None:  # one without connections is false
        connections = Connections(ConnectionLimits(max_connections=max_connections()))
    return uvicorn.Config(
        app,
        **protocols(connections),
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",  # RequestMiddleware logs failures with the request's id
        access_log=False,  # it would log the query, and with it a WebSocket's token
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=math.ceil(connections.limits.idle_seconds),
        ws_max_size=MAX_FRAME,
        ws_per_message_deflate=False,  # each of thousands of followers would need a compression window
        ws_ping_interval=20.0,
        ws_ping_timeout=60.0,
        timeout_graceful_shutdown=max(1, round(options.grace_seconds - options.drain_seconds)),
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )


def connection_limits(settings: ServerConfig, *, grpc: bool) -> tuple[int, ConnectionLimits]:
    """The number of connections for gRPC, and the limits of HTTP, which gets the rest."""
    from debug_server.surfaces.http.connections import ConnectionLimits

    available = max_connections()
    total = available if settings.max_connections is None else min(available, settings.max_connections)
    grpc_share = max(1, total // _GRPC_SHARE) if grpc else 0
    limits = ConnectionLimits(
        max_connections=max(1, total - grpc_share),
        head_seconds=settings.head_timeout,
        body_seconds=settings.body_timeout,
        idle_seconds=settings.keep_alive,
    )
    return grpc_share, limits


class _ServerRun:
    """One run of the event loop, from start to exit."""

    def __init__(self, local: Local, options: ServeOptions, sockets: _Sockets) -> None:
        from debug_server.surfaces.http.connections import Connections
        from debug_server.surfaces.http.unidentified import UnidentifiedCallers
        from debug_server.surfaces.http.uvicorn_server import HttpServer

        self._local = local
        self._options = options
        self._sockets = sockets
        self._parts = build_parts(local, options.parts)
        self._app = http_app(local, parts=self._parts, api=API in options.parts)
        self._signalled_at: float | None = None
        self._parts_started = asyncio.Event()  # every part runs
        self._draining: asyncio.Task[None] | None = None
        self._grpc_connections, limits = connection_limits(local.settings.server, grpc=options.grpc_port is not None)
        local.service.followers.limit = max_followers(limits.max_connections)
        per_second = local.settings.server.unidentified_per_second
        unidentified = UnidentifiedCallers(per_second=per_second, recent_tokens=local.service.recent_tokens)
        connections = Connections(limits, unidentified=unidentified)
        config = uvicorn_config(self._app, options, connections)
        try:
            config.load()
        except OSError as error:  # of which ssl's errors are a kind
            raise ConfigurationError(
                f"the TLS files {options.tls_cert}, {options.tls_key} cannot be used: {error}"
            ) from error
        self._server = HttpServer(config, connections)

    async def until_signal(self, announce: Callable[[str], None]) -> float:
        """Serve until a signal; returns the deadline for the exit, on the monotonic clock."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        host, port = self._sockets.http.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        announce(f"serving on {self._options.scheme}://{shown}:{port}")
        serving = loop.create_task(self._serve())
        grpc = None
        try:
            if self._options.grpc_port is not None:
                grpc = await self._start_grpc(self._options.grpc_port)
                self._write_addresses(f"{self._options.scheme}://{shown}:{port}", grpc.port)
                if await self._wait_for_parts(serving):
                    announce(f"serving gRPC on port {grpc.port}")
        except BaseException:
            self._server.should_exit = True
            raise
        finally:
            await serving
            if grpc is not None:
                await grpc.stop(max(0.0, self._deadline() - time.monotonic()) / 2)
        return self._deadline()

    def _write_addresses(self, http: str, grpc_port: int) -> None:
        """Write the addresses for command lines, so that they do not send a token to another server's port."""
        path = self._local.server_lock_path.with_name(ADDRESSES)
        try:
            path.write_text(json.dumps({"pid": os.getpid(), "grpc_port": grpc_port, "http": http}))
        except OSError as error:  # the disk is full: the server serves, and command lines ask for its address
            _LOG.warning("addresses_not_noted", extra={"path": str(path), "error": str(error)})

    async def _serve(self) -> None:
        async with running(self._app):
            self._parts_started.set()
            await self._server.serve(sockets=[self._sockets.http, *self._sockets.unix])

    async def _wait_for_parts(self, serving: asyncio.Task[None]) -> bool:
        """Wait until every part runs, or events for new repositories are skipped; False if the server ends first."""
        live = asyncio.ensure_future(self._parts_started.wait())
        await asyncio.wait([live, serving], return_when=asyncio.FIRST_COMPLETED)
        live.cancel()
        return self._parts_started.is_set()

    async def _start_grpc(self, port: int) -> GrpcServer:
        """After HTTP: the library alone takes a third of a second to load."""
        module = await asyncio.to_thread(import_module, "debug_server.surfaces.grpc")
        cert, key = self._options.tls_cert, self._options.tls_key
        tls = module.Tls(certificate=cert.read_bytes(), key=key.read_bytes()) if cert and key else None
        settings = self._local.settings.server
        limits = module.ConnectionLimits(
            max_connections=self._grpc_connections,
            handshake_seconds=settings.head_timeout,
            idle_seconds=settings.keep_alive,
            unidentified_seconds=settings.keep_alive,
        )
        found = [await asyncio.to_thread(part.grpc_services) for part in self._parts]
        part_services = {name: handler for services in found for name, handler in services.items()}
        if self._sockets.grpc is not None:
            self._sockets.grpc.close()
        server: GrpcServer = module.build_server(
            self._local.service,
            host=self._options.host,
            port=port,
            tls=tls,
            part_services=part_services,
            limits=limits,
        )
        await server.start()
        return server

    def _on_signal(self) -> None:
        if self._signalled_at is not None:
            self._server.force_exit = self._server.should_exit = True
            return
        self._signalled_at = time.monotonic()
        _LOG.info("draining", extra={"grace_seconds": self._options.grace_seconds})
        self._local.service.drain()
        for part in self._parts:
            part.drain()
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        """Keep answering, mostly with 503, until every part has drained."""
        try:
            pause = asyncio.sleep(self._options.drain_seconds)
            await asyncio.gather(pause, *(part.drained() for part in self._parts))
        finally:
            self._end_streams()

    def _deadline(self) -> float:
        """The end of the grace period, at least _MIN_CLOSE_SECONDS from now: a part may have used up the period."""
        soonest = time.monotonic() + _MIN_CLOSE_SECONDS
        if self._signalled_at is None:
            return soonest
        return max(self._signalled_at + self._options.grace_seconds, soonest)

    def _end_streams(self) -> None:
        self._server.config.timeout_graceful_shutdown = math.ceil(self._deadline() - time.monotonic())
        self._server.should_exit = True  # first: whatever fails, the server ends
        self._app.streams.end_all()


def _wait_for_threads(deadline: float) -> None:
    """Wait for other threads until the deadline; then exit at once, because all durable state is on disk."""
    left = [item for item in threading.enumerate() if not item.daemon and item is not threading.main_thread()]
    for item in left:
        item.join(max(0.0, deadline - time.monotonic()))
    if busy := [item.name for item in left if item.is_alive()]:
        _LOG.warning("threads_still_running", extra={"threads": busy})
        with suppress(OSError):
            sys.stdout.flush()
        logging.shutdown()
        os._exit(0)
