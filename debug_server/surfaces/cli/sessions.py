"""Working off one session's commands in this process, and showing what would be done."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from debug_server.engine import SessionWorkspace, session_workspace
from debug_server.errors import DebugServerError, InvalidInputError
from debug_server.model import Command, CommandStatus, ExitRecord, Session
from debug_server.ports import Lease
from debug_server.runner.environments.request import EnvironmentRequest
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.log_listener import observe_log
from debug_server.runner.planning import Job, Planner
from debug_server.runner.recovery import Adopted, recover
from debug_server.runner.settings import shell_command
from debug_server.runner.spec import CommandSpec
from debug_server.runner.worker import WorkerSupervisor, session_number
from debug_server.surfaces.cli.outcome import FAILURE, exit_status, summary
from debug_server.surfaces.cli.output import tell
from debug_server.surfaces.cli.parts import LocalParts
from debug_server.surfaces.cli.passthrough import FOR_EVER, Printer


def work_off(local: LocalParts, session_id: str, *, add: str | None) -> int:
    """Adopt what still runs, then run the waiting commands in order; returns the first status that is not 0."""
    session = local.store.sessions.get(session_number(session_id))
    statuses = _recover(local, session)
    if add is not None or local.store.commands.in_session(session.id, status=CommandStatus.PENDING):
        statuses += _run_waiting(local, session, add)
    return next((status for status in statuses if status), 0)


def _run_waiting(local: LocalParts, session: Session, add: str | None) -> list[int]:
    statuses = []
    with _workspace(local, session) as lease:
        if add is not None:
            argv = shell_command(local.settings.default_shell, add)
            local.store.commands.add(session_id=session.id, argv=argv, limits=local.settings.limits)
        request = local.sessions.environment(session, lease.path)
        supervisor = local.bare_supervisor if request is None else local.supervisor
        while (command := local.store.queue.claim_next(supervisor.owner, session_id=session.id)) is not None:
            statuses.append(_run(local, supervisor, command, lease, request))
    return statuses


@contextlib.contextmanager
def _workspace(local: LocalParts, session: Session) -> Iterator[Lease]:
    """Where the commands run: the session's own place, kept for as long as the block runs, or this directory."""
    try:
        lease: Lease = local.sessions.prepare(session)
    except InvalidInputError:
        yield SessionWorkspace(path=Path.cwd())
        return
    session = local.store.sessions.get(session.id)  # it may have been leased just now
    with contextlib.nullcontext() if session.worktree_id is None else local.sessions.lease(session).kept_alive():
        yield lease


def _recover(local: LocalParts, session: Session) -> list[int]:
    left = [row.id for row in local.store.queue.claimed() if row.session_id == session.id]
    statuses = []
    for item in recover(local.store, local.settings.paths, local.bare_supervisor.owner, session_id=session.id):
        left.remove(item.command.id)
        statuses.append(_carry_on(local, item))
    for row in map(local.store.commands.get, left):
        if row.exit is not None:  # ended by the recovery itself
            statuses.append(_tell(row.exit, Path(row.log_path) if row.log_path else None))
    return statuses


def _carry_on(local: LocalParts, item: Adopted) -> int:
    observed = observe_log(item.log_path, [Printer()])
    result = local.bare_supervisor.pipeline.follow_adopted(item.command, item.running, item.log_path)
    observed.finish(FOR_EVER)
    local.sessions.conclude(item.command)
    return _tell(result.exit, result.log_path)


def _run(
    local: LocalParts,
    supervisor: WorkerSupervisor,
    command: Command,
    lease: Lease,
    request: EnvironmentRequest | None,
) -> int:
    try:
        spec = CommandSpec.from_command(command, *local.store.commands.inputs(command.id))
        result = supervisor.run_claimed(
            command, spec, lease, env_request=request, stream_observers=[Printer()], observer_seconds=FOR_EVER
        )
    except DebugServerError as error:
        tell(str(error))
        ended = local.store.commands.get(command.id).exit
        return FAILURE if ended is None else exit_status(ended)
    finally:
        local.sessions.conclude(command)
    return _tell(result.exit, result.log_path)


def _tell(record: ExitRecord, log_path: Path | None) -> int:
    """On stderr: stdout holds what the commands wrote and nothing else."""
    sys.stdout.flush()
    sys.stderr.write(f"{summary(record, log_path)}\n")
    sys.stderr.flush()
    return exit_status(record)


def print_plan(local: LocalParts, text: str, *, session_id: str | None) -> int:
    """What running ``text`` would mean: nothing is written and nothing is started but a probe of this machine."""
    spec = CommandSpec(shell_command(local.settings.default_shell, text), limits=local.settings.limits)
    lease = _planned_lease(local, session_id)
    command = _imagined(spec, session_number(session_id or 0))
    with KeeperPool(containment=local.settings.containment) as pool:  # no supervisor: that would make a store
        order = Planner(local.settings, pool).order(Job(command=command, spec=spec, lease=lease), {})
        capabilities = pool.capabilities
    log_path = str(order.log_path).replace("-0.log", "-<id>.log")
    lines = [f"argv         {shlex.join(order.argv)}", f"cwd          {order.cwd}", f"log          {log_path}"]
    lines += [f"process tree {capabilities.mechanism} ({', '.join(sorted(capabilities.controllers)) or 'no limits'})"]
    lines += [f"limit        {name} = {item['asked']} by {item['by']}" for name, item in order.limits.items()]
    lines += [] if order.limits else ["limits       none asked"]
    lines += [f"env          {name}={value}" for name, value in sorted(order.env.items())]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _planned_lease(local: LocalParts, session_id: str | None) -> SessionWorkspace:
    if session_id is not None:
        with contextlib.suppress(InvalidInputError):
            return session_workspace(local.store.worktrees, local.store.sessions.get(session_number(session_id)))
    return SessionWorkspace(path=Path.cwd())


def _imagined(spec: CommandSpec, session_id: int) -> Command:
    now = datetime.now(UTC)
    return Command(
        id=0,
        session_id=session_id,
        sequence=0,
        argv=tuple(spec.argv),
        cwd=None,
        env_names=(),
        log_name=spec.log_name,
        limits=spec.bounds,
        status=CommandStatus.PENDING,
        attempt=0,
        owner=None,
        priority=0,
        queue_key="",
        key_limit=1,
        tty=False,
        cancel_requested=False,
        idempotency_key=None,
        log_path=None,
        exit_code=None,
        exit_reason=None,
        exit=None,
        created_at=now,
        updated_at=now,
        started_at=None,
        finished_at=None,
    )
