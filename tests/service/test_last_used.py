"""A session is in use while its owner works in it, and idle otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from debug_server import messages as m
from debug_server.app import Local
from debug_server.engine.elapsed import ElapsedTime
from debug_server.engine.housekeeping import IDLE, Housekeeper
from debug_server.errors import ConflictError
from debug_server.model import Command, Session
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.runner.spec import CommandSpec
from debug_server.service.caller import Caller
from debug_server.store import open_store
from tests.running import VISIBLE, Workspace, eventually
from tests.servers import unmount_below
from tests.store.away import away
from tests.worktrees.places import make_remote

HOUR = timedelta(hours=1)
WRITER_SECONDS = 120.0  # that a writer waits for a lock: so much longer than a stall that the two are not mixed up
EVERY = frozenset({"sessions:read", "sessions:write", "commands:write", "artifacts:read"})


class Machine:
    """A machine without a server, whose clock the test moves."""

    def __init__(self, root: Path) -> None:
        self.now = datetime.now(UTC)
        self.database = str(root / "store.db")
        self.local = Local(RunnerSettings(RunnerPaths.from_root(root / "artifacts"), isolation=VISIBLE), self.database)
        self.local.store = open_store(self.database, now=lambda: self.now, busy_seconds=WRITER_SECONDS)
        remote = make_remote(root / "remote")
        remote.commit({"note": "one\n"})
        self._repository = self.local.sessions.register_reachable(str(remote.path))
        token, _ = self.local.store.tokens.create("owner", sorted(EVERY), quotas={"sessions": 100})
        self.owner = Caller.of(token)
        self._ticks = 1000.0
        self._keeper = Housekeeper(
            store=self.local.store,
            sessions=self.local.sessions,
            supervisor=self.local.supervisor,
            cancel=self.local.engine.cancel,
            wait=self.local.engine.wait,
            elapsed=ElapsedTime(wall=lambda: self.now, ticks=lambda: self._ticks),
        )

    def passes(self, span: timedelta) -> None:
        """Time, for everybody."""
        self.now += span
        self._ticks += span.total_seconds()

    def open(self) -> Session:
        """A session of the owner."""
        return self.local.sessions.open(
            self._repository, commit="main", owner="test", owner_token_id=self.owner.token_id
        )

    def run(self, session: Session) -> Command:
        """A command that has ended."""
        place = Workspace(Path(self.local.store.worktrees.get(session.worktree_id or 0).path))
        self.local.supervisor.run_command(session.id, CommandSpec(["echo", "text"]), place)
        return self.local.store.commands.in_session(session.id)[-1]

    def check_sessions(self) -> set[int]:
        """The sessions that a round of housekeeping closes."""
        return set(self._keeper.check_sessions())

    def stamp(self, session: Session) -> datetime:
        """When it was last used."""
        return self.local.store.sessions.get(session.id).updated_at


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """With a repository and nothing else."""
    made = Machine(tmp_path)
    with made.local:
        yield made
    unmount_below(tmp_path)


def _verbs(machine: Machine) -> dict[str, Callable[[Session, Command], Awaitable[object]]]:
    """Everything that is work in a session."""
    service, owner = machine.local.service, machine.owner

    async def follow(session: Session, command: Command) -> None:
        async for _ in service.logs.follow(owner, m.FollowLog(command_id=command.id)):
            pass

    async def read_all(session: Session, command: Command) -> None:
        async for _ in service.session_logs.read(owner, m.FollowSession(session_id=session.id)):
            pass

    async def write(session: Session, command: Command) -> None:
        with contextlib.suppress(ConflictError):  # it has ended: who writes works in the session all the same
            await service.commands.write_stdin(owner, m.WriteStdin(command_id=command.id, write_id="1", data="x"))

    return {
        "submit": lambda s, _: service.commands.submit(owner, m.SubmitCommand(session_id=s.id, argv=["true"])),
        "wait": lambda _, c: service.commands.wait(owner, m.WaitCommand(command_id=c.id, timeout=1)),
        "read_log": lambda _, c: service.logs.read(owner, m.ReadLog(command_id=c.id)),
        "follow_log": follow,
        "read_session": read_all,
        "stdin": write,
        "diff": lambda s, _: service.sessions.diff(owner, m.SessionRef(session_id=s.id)),
        "reset": lambda s, _: service.sessions.reset(owner, m.SessionRef(session_id=s.id)),
        "fork": lambda s, _: service.sessions.fork(owner, m.ForkSession(session_id=s.id, count=1)),
        "artifacts": lambda s, _: service.artifacts.page(owner, m.SessionListRequest(session_id=s.id)),
    }


async def _once(verb: Awaitable[object]) -> None:
    await verb


def test_a_session_that_its_owner_uses_is_not_idle(machine: Machine) -> None:
    """Whatever the owner does in a session keeps it for a day from then; one that nobody uses, that is only looked at,
    or that somebody else reads, is closed after its day."""
    service, verbs = machine.local.service, _verbs(machine)
    used = {name: machine.open() for name in verbs}
    commands = {name: machine.run(session) for name, session in used.items()}
    unused, watched, foreign = (machine.open() for _ in range(3))
    foreign_command = machine.run(foreign)
    machine.passes(IDLE - HOUR)

    async def use() -> None:
        for name, verb in verbs.items():
            await verb(used[name], commands[name])
        await service.sessions.get(machine.owner, m.SessionRef(session_id=watched.id))
        admin = Caller(token_id=None, name="admin", scopes=frozenset({"admin"}))
        await service.logs.read(admin, m.ReadLog(command_id=foreign_command.id))

    asyncio.run(use())
    for name, session in used.items():
        eventually(lambda: machine.stamp(session) == machine.now, what=f"the use by {name}")  # noqa: B023
    machine.passes(2 * HOUR)
    assert machine.check_sessions() == {unused.id, watched.id, foreign.id}
    machine.passes(IDLE)
    assert {used[name].id for name in verbs if name != "submit"} <= machine.check_sessions()
    assert machine.check_sessions() == set(), "the submitted command waits for a server: its session is not idle"


def test_reads_do_not_write_and_need_no_store_to_write_to(machine: Machine) -> None:
    """A hundred reads move the row once; a store that is locked makes no read wait."""
    service, read = machine.local.service, _verbs(machine)["read_log"]
    first, second = machine.open(), machine.open()
    commands = [machine.run(session) for session in (first, second)]
    machine.passes(HOUR)
    asyncio.run(_once(read(first, commands[0])))
    noted = machine.now
    eventually(lambda: machine.stamp(first) == noted, what="the first read")
    machine.passes(HOUR)
    began = time.monotonic()

    async def read_often() -> None:
        for _ in range(100):
            await read(first, commands[0])
            await read(second, commands[1])

    with away(machine.database):
        asyncio.run(read_often())
        assert time.monotonic() - began < WRITER_SECONDS / 2
        assert machine.stamp(second) < noted
    eventually(lambda: machine.stamp(second) == machine.now, what="the use that was noted meanwhile")
    assert machine.stamp(first) == noted
    service.close()
