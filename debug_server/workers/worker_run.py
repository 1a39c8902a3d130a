"""One run of a worker: a command of the store under a keeper, seen from the event loop.

The runner handles the row, the log, the exit record and their recovery; a thread waits for the end, as for any command.
This module adds the channel, and the first sign of the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from debug_server.errors import DebugServerError
from debug_server.model import CommandSpec, ExitReason, ExitRecord, WorkerIdentity
from debug_server.runner.end_recorder import UnrecordedEndError
from debug_server.runner.planning import Job
from debug_server.runner.recovery import Adopted
from debug_server.runner.running_command import DetachedError, RunningCommand, reconnect
from debug_server.runner.worker import WorkerSupervisor
from debug_server.workers.channel import ChannelListener, RelayChannel
from debug_server.workers.interface import WorkerExit


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """What to start, and the identity by which recovery finds it."""

    session_id: int
    spec: CommandSpec
    cwd: Path
    identity: WorkerIdentity


@dataclass(frozen=True, slots=True)
class _Place:
    path: Path


class WorkerRun:
    """One process, from its start to the empty tree; created and used in the event loop."""

    def __init__(
        self,
        runner: WorkerSupervisor,
        *,
        on_output: Callable[[str, int], None],
        on_ending: Callable[[], None],
        offset: int | None = 0,
    ) -> None:
        """``on_ending`` is called once, at the first sign of the end."""
        self._runner = runner
        self._on_ending = on_ending
        self._loop = asyncio.get_running_loop()
        self._running: RunningCommand | None = None
        self._requested_end: tuple[float, str] | None = None
        self.command_id: int | None = None
        self.spawned: asyncio.Future[int] = self._loop.create_future()  # its pid
        self.ending = asyncio.Event()
        self.ended: asyncio.Future[WorkerExit] = self._loop.create_future()
        listener = ChannelListener(
            attached=self._on_attached, output=on_output, ending=self._report_ending, broken=self._on_broken
        )
        self.channel = RelayChannel(listener, offset=offset)
        self._opening: asyncio.Task[None] | None = None

    def begin(self, order: RunOrder) -> None:
        """Start it; sets ``spawned`` or ``ended``."""
        self._in_thread(lambda: self._run(order))

    def adopt(self, adopted: Adopted) -> None:
        """Continue a run that another process has started."""
        self.command_id = adopted.command.id
        self._on_started(adopted.running)
        self._in_thread(lambda: self._follow(adopted))

    def end(self, *, grace: float, message: str) -> None:
        """TERM, ``grace`` seconds, KILL; ``ended`` is set when the tree is empty."""
        self._requested_end = (grace, message)
        self._report_ending()
        if self._running is not None:
            self._running.send({"op": "cancel", "grace": grace, "message": message})

    # -- in the thread --------------------------------------------------------------------------------------------

    def _in_thread(self, work: Callable[[], ExitRecord]) -> None:
        def body() -> None:
            try:
                record = work()
            except DetachedError:
                record = ExitRecord(reason=ExitReason.LOST, message="this server detached from it")
            except UnrecordedEndError as error:
                record = error.result.exit
            except DebugServerError as error:
                record = ExitRecord(reason=ExitReason.SPAWN_FAILED, message=str(error))
            except Exception as error:  # noqa: BLE001 - the thread's boundary: the supervisor must get every end
                record = ExitRecord(reason=ExitReason.LOST, message=f"{type(error).__name__}: {error}")
            self._call_in_loop(lambda: self._on_ended(record))

        threading.Thread(target=body, name="worker", daemon=True).start()

    def _run(self, order: RunOrder) -> ExitRecord:
        store, spec = self._runner.store, order.spec
        command = store.commands.add(
            session_id=order.session_id,
            **replace(spec, cwd=order.cwd).to_columns(inline=True, worker=order.identity),
            claim_owner=self._runner.owner,
        )
        self.command_id = command.id
        job = Job(
            command=command,
            spec=spec,
            lease=_Place(order.cwd),
            cwd=order.cwd,
            on_start=lambda running: self._call_in_loop(lambda: self._on_started(running)),
        )
        return self._runner.pipeline.run(job).exit

    def _follow(self, adopted: Adopted) -> ExitRecord:
        return self._runner.pipeline.wait_for_adopted(adopted.command, adopted.running, adopted.log_path).exit

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: this server has ended
            self._loop.call_soon_threadsafe(callback)

    # -- in the loop ----------------------------------------------------------------------------------------------

    def _on_started(self, running: RunningCommand) -> None:
        self._running = running
        if self._requested_end is not None:
            self.end(grace=self._requested_end[0], message=self._requested_end[1])
        self._open()

    def _open(self) -> None:
        self._opening = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        running = self._running
        assert running is not None
        connection = await asyncio.to_thread(reconnect, running.run_dir, running.handle)
        if connection is None:  # it has ended, or its keeper is dead
            self._on_gone()
        elif self.channel.closed:
            connection.close()
        else:
            await self.channel.open(connection.raw_socket())

    def _report_ending(self) -> None:
        if not self.ending.is_set():
            self.ending.set()
            self._on_ending()

    def _on_gone(self) -> None:
        self._report_ending()
        self.channel.finish()

    def _on_broken(self) -> None:
        if self.ended.done():
            self._on_gone()
        else:
            self._open()

    def _on_attached(self, pid: int) -> None:
        if not self.spawned.done():
            self.spawned.set_result(pid)

    def _on_ended(self, record: ExitRecord) -> None:
        self._on_gone()
        self.spawned.cancel()
        self.ended.set_result(worker_exit(record))


def worker_exit(record: ExitRecord) -> WorkerExit:
    """The exit of a worker from its exit record."""
    plain = record.reason in (ExitReason.EXITED, ExitReason.NONZERO_EXIT, ExitReason.SIGNALED)
    ladder = record.evidence.get("ladder")
    return WorkerExit(
        at=datetime.now(UTC),
        code=record.exit_code,
        signal=record.signal,
        error=None if plain else record.message or str(record.reason),
        reason=record.reason.value,
        killed=isinstance(ladder, dict) and "seconds_after_kill" in ladder,
        survivors=bool(record.evidence.get("survivors")),
    )
