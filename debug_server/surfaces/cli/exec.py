"""``debug-server exec``: runs a command and prints its output when it has ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.client.completed import RunInProgress
from debug_server.errors import InvalidInputError, UnavailableError
from debug_server.messages import ExecReply
from debug_server.messages.execs import MAX_OUTPUT_BYTES, MAX_WAIT
from debug_server.model import ExitReason
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.command import Argv, Artifacts, Cwd
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.environment_options import Extras, Groups, Manifests, Python
from debug_server.surfaces.cli.following import report_end, sigterm_as_sigint, status_of
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.limit_options import NO_LIMITS, LimitOptions, Require, with_limits
from debug_server.surfaces.cli.log_lines import RawLog
from debug_server.surfaces.cli.output import print_notice
from debug_server.surfaces.cli.passthrough import has_unread_stdin
from debug_server.surfaces.cli.variable_options import Secrets, Variables, given_variables
from debug_server.surfaces.cli.words import listed, patch_bytes, refuse_without_repo, seconds

app = CommandsApp()
_STILL_RUNNING = 75
_BY_ITSELF = (ExitReason.EXITED, ExitReason.NONZERO_EXIT)


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

    With --json the answer has output, exit code and times. The command gets no input: `debug-server run` passes on
    your input, and so does `debug-server command run -i`. Both print output as it is written.
    """
    call = invocation(context)
    if session is not None and repo is not None:
        raise InvalidInputError("give --session or --repo, not both: a session has its own workspace")
    longest_wait = min(seconds(wait, flag="--wait"), MAX_WAIT)
    if longest_wait <= 0:
        raise InvalidInputError(f"--wait {wait!r} must be longer than 0: `debug-server command submit` does not wait")
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
        patch=patch_bytes(patch),
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
        isolation=limit_options.isolation,
        network=limit_options.network,
        wait=longest_wait,
        on_disconnect="cancel",
        output_bytes=MAX_OUTPUT_BYTES,
    )
    with call.backend() as backend:
        with sigterm_as_sigint():
            reply = _reply(backend, request, longest_wait)
        log = RawLog()
        if call.as_json:
            call.output().json(reply.model_dump(mode="json"))
        else:
            _print(backend, reply, log)
        if has_unread_stdin():
            print_notice("exec passes no input on: use `debug-server run`, or `debug-server command run -i`")
        if not reply.ended:
            print_notice(f"command {reply.command_id} still runs: debug-server logs {reply.command_id} -f")
            raise typer.Exit(_STILL_RUNNING)
        if artifact:
            print_notice(f"kept files: debug-server artifact list {reply.session_id}")
        command = backend.send(calls.get_command(reply.command_id))
        if call.as_json or reply.exit_reason in _BY_ITSELF:
            raise typer.Exit(status_of(command))
        raise typer.Exit(report_end(call.output(), command, log))


def _reply(backend: Backend, request: calls.Call[ExecReply], seconds: float) -> ExecReply:
    """The answer when the command has ended or the time is over; a server that restarts is waited for."""
    deadline = time.monotonic() + seconds
    run = RunInProgress(request)
    while True:
        try:
            run.take(backend.send(run.call))
        except UnavailableError as error:
            run.interrupted(error)
            if run.reply is None and time.monotonic() >= deadline:
                raise
        left = deadline - time.monotonic()
        if run.reply is not None and (run.reply.ended or left <= 0):
            return run.reply
        run.wait_for(left)


def _print(backend: Backend, reply: ExecReply, log: RawLog) -> None:
    """Print the output; of much output the answer has the ends alone, and the log has all."""
    if not reply.left_out:
        log.write_bytes("stdout", reply.stdout)
        log.write_bytes("stderr", reply.stderr)
        return
    for piece in backend.stored_log(reply.command_id):
        if piece.stream != "system":
            log.write(piece)
