"""Holds a lease in one of several ways, says so, and waits to be killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from debug_server.app import Local
from debug_server.engine.sessions import Sessions
from debug_server.messages import StartRun
from debug_server.model import Repository, SessionPlan
from debug_server.runner.spec import CommandSpec
from debug_server.service.caller import LOCAL
from tests.engine.engines import open_local

root, remote, way = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def hold(local: Local, sessions: Sessions, repository: Repository) -> None:
    if way == "lease":
        sessions.pool(repository).acquire_worktree(commit_sha="main", owner="x", environment_hash=None)
    elif way == "fork":
        lease = sessions.lease(sessions.open(repository, commit="main", owner="x"))
        lease.fork(1)
    elif way == "session":
        sessions.open(repository, commit="main", owner="x")
    elif way == "run":
        sessions.open(repository, commit="main", owner="x", plan=SessionPlan(process=local.supervisor.owner))
    elif way == "command":
        session = sessions.open(repository, commit="main", owner="x")
        local.engine.start()
        local.engine.submit(session_id=session.id, spec=CommandSpec(["sh", "-c", "touch started; exec sleep 300"]))
    elif way == "start run":
        setattr(local.engine, "submit", lambda **_: say_and_wait())  # noqa: B010 - killed before it is in the queue
        wanted = StartRun(repository=repository.name, commit_sha="main", argv=["true"])
        asyncio.run(local.service.runs.start(LOCAL, wanted))


def say_and_wait() -> None:
    sys.stdout.write("held\n")
    sys.stdout.flush()
    signal.pause()


with open_local(root) as local:
    hold(local, local.sessions, local.sessions.register_reachable(remote))
    say_and_wait()
