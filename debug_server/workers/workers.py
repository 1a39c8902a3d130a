"""All supervised workers of one server: declared, adopted or removed after a crash, started, drained."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from debug_server.errors import ConfigurationError, DebugServerError, NotFoundError
from debug_server.model import SessionPlan, SessionStatus
from debug_server.ports import Telemetry
from debug_server.runner.recovery import Adopted, recover
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore
from debug_server.workers.clock import Clock, SystemClock
from debug_server.workers.graceful_stop import SHORT_GRACE
from debug_server.workers.interface import Handshake
from debug_server.workers.readiness import ProbeContext
from debug_server.workers.reporting import Reporter
from debug_server.workers.spec import HandshakeReadiness, WorkerSpec
from debug_server.workers.state import Machine
from debug_server.workers.supervisor import ServiceSupervisor

_LOG = logging.getLogger("debug_server.worker")
_RECOVERY_SECONDS = 20.0


class Workers:
    """Every instance of every declared worker."""

    def __init__(
        self,
        *,
        runner: WorkerSupervisor,
        store: MetadataStore,
        specs: Iterable[WorkerSpec] = (),
        handshakes: Mapping[str, Handshake] | None = None,
        telemetry: Telemetry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._runner, self._store, self._telemetry = runner, store, telemetry
        self._clock = clock or SystemClock()
        self._specs: dict[str, WorkerSpec] = {}
        self.handshakes: dict[str, Handshake] = dict(
            handshakes or {}
        )  # by protocol; added by the part that implements it
        self._instances: dict[str, list[ServiceSupervisor]] = {}
        self._sessions: list[int] = []
        self._unfinished_sessions: set[int] = set()  # sessions of workers that did not end in time
        for spec in specs:
            self.add(spec)

    def add(self, spec: WorkerSpec) -> None:
        """Declare a worker; call it before ``running``."""
        if spec.name in self._specs:
            raise ConfigurationError(f"worker {spec.name!r} is declared twice: give one of them another name")
        self._specs[spec.name] = spec

    def declares(self, name: str) -> bool:
        """Whether there is a worker of that name."""
        return name in self._specs

    def check_protocols(self) -> None:
        """ConfigurationError for a worker whose protocol is unknown: it would never be ready."""
        for spec in self._specs.values():
            asked = spec.readiness.protocol if isinstance(spec.readiness, HandshakeReadiness) else None
            if asked is not None and asked not in self.handshakes:
                raise ConfigurationError(f"worker {spec.name}: unknown protocol {asked!r}: {self._known_protocols()}")

    def _known_protocols(self) -> str:
        known = ", ".join(sorted(self.handshakes))
        return (
            f"use one of {known}"
            if known
            else "codex is available when the gateway is enabled (PROXY_USE_APP_SERVER=true)"
        )

    # -- for users ------------------------------------------------------------------------------------------------

    def named(self, name: str) -> list[ServiceSupervisor]:
        """The instances of one worker; NotFoundError when it is not declared."""
        if name not in self._instances:
            known = ", ".join(sorted(self._instances)) or "none"
            raise NotFoundError(f"there is no worker {name!r}; declared workers: {known}")
        return self._instances[name]

    def pick(self, name: str) -> ServiceSupervisor:
        """The ready instance with the fewest requests; any other if none is ready."""
        return min(self.named(name), key=lambda worker: (not worker.is_ready, worker.in_flight))

    def all(self) -> list[ServiceSupervisor]:
        """Every instance."""
        return [worker for instances in self._instances.values() for worker in instances]

    def statuses(self) -> list[dict[str, Any]]:
        """Every status object."""
        return [worker.status() for worker in self.all()]

    # -- start and end --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Start all workers; at the end stop all."""
        writer = ThreadPoolExecutor(1, thread_name_prefix="worker-events")
        recovering: asyncio.Task[None] | None = None
        try:
            await self._start(writer)
            recovering = asyncio.ensure_future(self._recover_periodically())
            yield
        finally:
            if recovering is not None:
                recovering.cancel()
            await self.drained()
            await asyncio.to_thread(self._close_sessions)
            await asyncio.to_thread(writer.shutdown)

    def drain(self) -> None:
        """Begin to shut all down: they take no new requests, and each ends within its grace."""
        for worker in self.all():
            worker.drain()

    async def drained(self) -> None:
        """Shut all down; returns when no process is left, or their time is over."""
        ended = await asyncio.gather(*(worker.shutdown() for worker in self.all()))
        self._unfinished_sessions = {
            worker.session_id for worker, done in zip(self.all(), ended, strict=True) if not done
        }

    async def _start(self, writer: ThreadPoolExecutor) -> None:
        adopted = await self._recover_dead()
        for spec in self._specs.values():
            self._instances[spec.name] = [
                await self._create(spec, number, writer, adopted.get((spec.name, number)))
                for number in range(spec.instances)
            ]

    async def _create(
        self, spec: WorkerSpec, number: int, writer: ThreadPoolExecutor, adopted: Adopted | None
    ) -> ServiceSupervisor:
        folder = self._folder(spec.name, number)
        await asyncio.to_thread(lambda: folder.mkdir(parents=True, exist_ok=True, mode=0o700))
        session_id = (
            adopted.command.session_id if adopted else await asyncio.to_thread(self._open_session, spec, number)
        )
        self._sessions.append(session_id)

        def reporter(machine: Machine) -> Reporter:
            return Reporter(
                machine,
                name=spec.name,
                instance=number,
                runner=self._runner,
                telemetry=self._telemetry,
                writer=writer,
                clock=self._clock,
            )

        context = ProbeContext(
            runner=self._runner,
            spec=spec.for_instance(number),
            instance=number,
            folder=folder,
            handshakes=self.handshakes,
        )
        worker = ServiceSupervisor(context, session_id=session_id, clock=self._clock, make_reporter=reporter)
        worker.start(adopted)
        return worker

    def _open_session(self, spec: WorkerSpec, number: int) -> int:
        plan, about = SessionPlan(directory=str(spec.cwd)), {"worker": spec.name, "instance": number}
        session = self._store.sessions.create(requested_by="workers", plan=plan, metadata=about)
        self._store.sessions.set_status(session.id, SessionStatus.RUNNING)
        return session.id

    def _close_sessions(self) -> None:
        for session_id in set(self._sessions) - self._unfinished_sessions:  # the others stay open for the next server
            with contextlib.suppress(DebugServerError):  # already closed by an operator
                self._store.sessions.set_status(session_id, SessionStatus.COMPLETED)

    def _folder(self, name: str, number: int) -> Path:
        return self._runner.paths.artifacts_root.absolute() / "workers" / f"{name}-{number}"

    # -- after a crash --------------------------------------------------------------------------------------------

    async def _recover_dead(self) -> dict[tuple[str, int], Adopted]:
        """Recover the workers of dead servers: adopt those that can be used, end the others."""
        found = await asyncio.to_thread(self._recover)
        usable = {key: item for item in found if (key := self._usable(item)) is not None}
        await asyncio.gather(*(self._remove(item) for item in found if item not in usable.values()))
        return usable

    def _recover(self) -> list[Adopted]:
        return recover(self._store, self._runner.paths, self._runner.owner, workers=True)

    def _usable(self, item: Adopted) -> tuple[str, int] | None:
        """Name and instance of a usable worker; None if it was not ready, was changed, or needs a handshake.

        After a handshake both sides have state (open requests, incomplete lines), and one side is gone.
        """
        identity = item.command.plan.worker
        spec = None if identity is None else self._specs.get(identity.name)
        if identity is None or spec is None:
            return None
        if isinstance(spec.readiness, HandshakeReadiness) or identity.instance >= spec.instances:
            return None
        if identity.fingerprint != spec.for_instance(identity.instance).fingerprint() or item.command.cancel_requested:
            return None
        try:
            ready = (self._folder(spec.name, identity.instance) / "ready").read_text()
        except FileNotFoundError:
            return None
        return (spec.name, identity.instance) if ready == str(item.command.id) else None

    async def _remove(self, item: Adopted) -> None:
        identity = item.command.plan.worker
        name = None if identity is None else identity.name
        _LOG.info("worker_removed", extra={"component": "worker", "worker": name, "command_id": item.command.id})
        grace = {"op": "cancel", "grace": SHORT_GRACE, "message": "its server died"}
        item.running.send(grace)
        wait = self._runner.pipeline.wait_for_adopted
        await asyncio.to_thread(wait, item.command, item.running, item.log_path)

    async def _recover_periodically(self) -> None:
        """End workers of other servers on this store that die while this one runs."""
        while True:
            await asyncio.sleep(_RECOVERY_SECONDS)
            try:
                for item in await asyncio.to_thread(self._recover):
                    await self._remove(item)
            except (DebugServerError, OSError) as error:
                _LOG.warning("worker_recovery_failed", extra={"component": "worker", "error": str(error)})
