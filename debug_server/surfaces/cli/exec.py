"""``debug-server exec``: runs a command and prints its output when it has ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.messages import ExecReply
from debug_server.messages.execs import MAX_OUTPUT_BYTES, MAX_WAIT
from debug_server.surfaces.cli.command import Argv, Artifacts, Cwd
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.environment_options import Extras, Groups, Manifests, Python
from debug_server.surfaces.cli.following import status_of
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.limit_options import NO_LIMITS, LimitOptions, Require, with_limits
from debug_server.surfaces.cli.output import print_notice
from debug_server.surfaces.cli.variable_options import Secrets, Variables, given_variables
from debug_server.surfaces.cli.words import listed, patch_text, refuse_without_repo, seconds

app = CommandsApp()
_STILL_RUNNING = 75


@app.command(context_settings={"allow_interspersed_args": False})
@with_limits
def exec_(
    context: typer.Context,
    argv: Argv,
    session: Annotated[int | None, typer.Option(help="run in this session; default: in a new empty folder")] = None,
    repo: Annotated[
        str | None,
        typer.Option("--repo", "--repository", metavar="NAME", help="run in a new workspace of this repository"),
    ] = None,
    commit: Annotated[str | None, typer.Option(help="with --repo: branch, tag or commit; default: HEAD")] = None,
    patch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="with --repo: a patch to apply; - is stdin")
    ] = None,
    manifest: Manifests = None,
    python: Python = None,
    extra: Extras = None,
    group: Groups = None,
    cwd: Cwd = None,
    env: Variables = None,
    secret: Secrets = None,
    artifact: Artifacts = None,
    wait: Annotated[str, typer.Option(metavar="TIME", help="the longest time to wait, such as 90 or 15m")] = "1h",
    limit_options: LimitOptions = NO_LIMITS,
    require: Require = None,
) -> None:
    """Run a command and print its output when it has ended; exit with its status, or with 75 if it still runs.

    With --json the answer has output, exit code and times. `debug-server command run` prints output as it is written.
    """
    call = invocation(context)
    if repo is None:
        refuse_without_repo(
            {
                "--commit": commit,
                "--patch": patch,
                "--manifest": manifest,
                "--python": python,
                "--extra": extra,
                "--group": group,
            }
        )
    request = calls.exec_command(
        argv,
        session_id=session,
        repository=repo,
        commit_sha=commit,
        patch=patch_text(patch),
        manifests=manifest or [],
        python=python,
        extras=extra or [],
        groups=group or [],
        cwd=cwd,
        env=given_variables(env, secret),
        secrets=secret or [],
        artifacts=artifact or [],
        limits=limit_options.limits(),
        require=listed(require),
        wait=min(seconds(wait, flag="--wait"), MAX_WAIT),
        on_disconnect="cancel",
        output_bytes=MAX_OUTPUT_BYTES,
    )
    with call.backend() as backend:
        reply = backend.send(request)
        if call.as_json:
            call.output().json(reply.model_dump(mode="json"))
        else:
            _print(reply)
        if not reply.ended:
            print_notice(f"command {reply.command_id} still runs: debug-server logs {reply.command_id} -f")
            raise typer.Exit(_STILL_RUNNING)
        if artifact:
            print_notice(f"kept files: debug-server artifact list {reply.session_id}")
        raise typer.Exit(status_of(backend.send(calls.get_command(reply.command_id))))


def _print(reply: ExecReply) -> None:
    for target, data in ((1, reply.stdout), (1, reply.stdout_tail), (2, reply.stderr), (2, reply.stderr_tail)):
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]
    if reply.left_out:
        count = sum(part.bytes for part in reply.left_out)
        print_notice(f"{count} bytes in the middle are left out: debug-server logs {reply.command_id} --raw")
