"""The command line ``python -m debug_server.runner.supervisor`` and the names that users import from here.

``--session ID`` runs the session's waiting commands in order and streams them, after recovering those of a dead
process; ``--command`` adds one. ``--dry-run --command "pytest"`` prints the plan and starts nothing.
Exit status: 0 when everything succeeded, else that of the first command that did not; 2 for a wrong request; 130
after Ctrl-C, which cancels what runs. Each command's result is printed to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from debug_server.errors import CommandExecutionError, DebugServerError, PatchApplicationError
from debug_server.runner.worker import WorkerSupervisor

__all__ = ["CommandExecutionError", "PatchApplicationError", "WorkerSupervisor", "main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = _parser().parse_args(argv)
    if options.dry_run and options.command is None:
        return _refuse('--dry-run needs --command "…"')
    if not options.dry_run and options.session is None:
        return _refuse('name a session with --session ID, or show a plan with --dry-run --command "…"')
    # Imported late: only this shim of the package may import the composition root.
    from debug_server.app import programs

    place = {"config": options.config, "database_url": options.database_url}
    try:
        if options.dry_run:
            return programs.print_plan(options.command, session_id=options.session, **place)
        return programs.run_session_commands(options.session, add=options.command, **place)
    except DebugServerError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return _INTERRUPTED


def _refuse(message: str) -> int:
    sys.stderr.write(f"supervisor: {message}\n")
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="supervisor", description="Run a session's commands on this machine.")
    parser.add_argument("--session", metavar="ID", help="the session whose waiting commands to run")
    parser.add_argument("--command", metavar="TEXT", help="a shell command to add (or to plan, with --dry-run)")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and start nothing")
    parser.add_argument("--config", metavar="FILE", help="settings file (default: the nearest config/runner.toml)")
    parser.add_argument("--database-url", metavar="URL", help="the store (default: DEBUG_SERVER_DB_URL)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
