"""``python -m debug_server.runner.supervisor``: runs one session's commands, or prints a plan."""

from __future__ import annotations

import shlex
import sys

from debug_server.service.dry_runs import DryRun
from debug_server.service.foreground import ForegroundRuns, RunReply
from debug_server.surfaces.cli.outcome import FAILURE, exit_status, summary
from debug_server.surfaces.cli.output import print_notice
from debug_server.surfaces.cli.passthrough import Printer


def run_session_commands(foreground: ForegroundRuns, session_id: str, *, add: str | None) -> int:
    """Follow running commands, then run the waiting ones in order; returns the first status that is not 0."""
    statuses = [_report(reply) for reply in foreground.run_session_commands(session_id, add=add, observers=[Printer()])]
    return next((status for status in statuses if status), 0)


def _report(reply: RunReply) -> int:
    """On stderr: stdout holds what the commands wrote and nothing else."""
    if reply.exit is None or reply.error is not None:
        print_notice(reply.error or f"the end of command {reply.command_id} is not known")
        return FAILURE if reply.exit is None else exit_status(reply.exit)
    sys.stdout.flush()
    sys.stderr.write(f"{summary(reply.exit, reply.log_path)}\n")
    sys.stderr.flush()
    return exit_status(reply.exit)


def print_plan(planned: DryRun) -> int:
    """Print the plan, one line for each item."""
    lines = [
        f"argv         {shlex.join(planned.argv)}",
        f"cwd          {planned.cwd}",
        f"log          {planned.log_path}",
    ]
    lines += [f"process tree {planned.mechanism} ({', '.join(planned.controllers) or 'no controllers'})"]
    lines += [f"limit        {name} = {item['asked']} by {item['by']}" for name, item in planned.limits.items()]
    lines += [] if planned.limits else ["limits       none requested"]
    lines += [f"env          {name}={value}" for name, value in sorted(planned.env.items())]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
