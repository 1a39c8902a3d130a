"""A server that is killed at a chosen point. Usage: die_at.py ROOT POINT inline|queued ARGV...

Points: ``claimed`` (before any keeper has orders), ``ordered`` (a keeper has them), ``launched`` (it has begun),
``started`` (the row knows), ``ended`` (there is an exit record, the row does not know), ``finished`` (the row knows,
the rest is not done), ``never``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from debug_server.engine import LocalEngine
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.pipeline import Pipeline
from debug_server.runner.running_command import RunningCommand
from debug_server.runner.spec import CommandSpec
from debug_server.store.commands import Commands
from tests.running import Bench


def die(*_: object, **__: object) -> Any:
    """As suddenly as can be."""
    os.kill(os.getpid(), signal.SIGKILL)


def after(work: Callable[..., Any]) -> Callable[..., Any]:
    """``work``, then death."""

    def both(*arguments: Any, **named: Any) -> Any:
        work(*arguments, **named)
        die()

    return both


def arm(point: str) -> None:
    """Set the trap."""
    if point == "claimed":
        KeeperPool.take = die  # type: ignore[method-assign]
    elif point == "ordered":
        KeeperConnection.wait_for = die  # type: ignore[method-assign]
    elif point == "launched":
        RunningCommand.ends_within = die  # type: ignore[method-assign]
    elif point == "started":
        RunningCommand.ends_within = lambda *_: None  # type: ignore[method-assign]
        Pipeline._record_start = after(Pipeline._record_start)  # type: ignore[method-assign]
    elif point == "ended":
        Commands.finish = die  # type: ignore[method-assign]
    elif point == "finished":
        RunningCommand.dispose = die  # type: ignore[method-assign]


def main() -> None:
    """Run one command as a server would, unless death comes first."""
    root, point, mode, *argv = sys.argv[1:]
    bench = Bench(Path(root))
    arm(point)
    sys.stdout.write(f"{bench.session.id}\n")
    sys.stdout.flush()
    if mode == "inline":
        bench.run(argv)
    else:
        engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
        engine.start()
        command = engine.submit(session_id=bench.session.id, spec=CommandSpec(argv))
        engine.wait(command.id, 60.0)
        engine.stop()
    bench.close()


if __name__ == "__main__":
    main()
