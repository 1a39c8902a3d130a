"""``debug-server rerun``: runs an earlier command again."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.messages import CommandReply, RunReply
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.following import run_and_follow
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import print_notice, progress
from debug_server.surfaces.cli.variable_options import Secrets, Variables, given_variables

app = CommandsApp()


@app.command()
def rerun(
    context: typer.Context,
    command: Annotated[int, typer.Argument(metavar="COMMAND", help="the command's id, as in `debug-server history`")],
    env: Variables = None,
    secret: Secrets = None,
) -> None:
    """Run an earlier command again, in a new session. Output and exit status are the command's.

    Arguments, folder, limits, commit, patch and manifests are those of the earlier command; a run in a directory runs
    there again. Values of variables are not kept: give them again.
    """
    call = invocation(context)
    request = calls.rerun_command(command, env=given_variables(env, secret))
    with call.backend() as backend:
        progress(f"running command {command} again")
        raise typer.Exit(run_and_follow(backend, call.output(), lambda: [_started(backend.send(request), command)]))


def _started(run: RunReply, earlier: int) -> CommandReply:
    """The new command, after telling what it starts from."""
    session = run.session
    place = "the directory where it ran" if session.commit_sha is None else f"commit {session.commit_sha[:12]}"
    patch = f" with patch {session.patch_hash[:12]}" if session.patch_hash else ""
    print_notice(f"command {run.command.id} runs command {earlier} again, from {place}{patch}")
    return run.command
