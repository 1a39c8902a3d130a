"""``debug-server command``: submits, shows, cancels and waits for commands."""

from __future__ import annotations

import os
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.messages import CommandReply, RunReply
from debug_server.model.signals import signal_number
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.environment_options import Extras, Groups, Manifests, Python
from debug_server.surfaces.cli.following import (
    run_and_follow,
    state_of,
    status_of,
    submitted_text,
    tell_what_it_waits_for,
    wait_for,
)
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.limit_options import NO_LIMITS, LimitOptions, Require, with_limits
from debug_server.surfaces.cli.output import Column, progress
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, NEWEST, After, All, Limit, read_part, show_part
from debug_server.surfaces.cli.remotes import Repository, chosen_repository, manifests_of
from debug_server.surfaces.cli.sent_input import sent_stdin
from debug_server.surfaces.cli.variable_options import Secrets, Variables, given_variables
from debug_server.surfaces.cli.words import duration, listed, patch_bytes

app = CommandsApp(no_args_is_help=True, help="Commands in sessions.")
CommandArgument = Annotated[int, typer.Argument(metavar="COMMAND", help="the command's id")]
Argv = Annotated[list[str], typer.Argument(metavar="-- CMD [ARG]...", help="the program and its arguments")]
Cwd = Annotated[str | None, typer.Option(metavar="FOLDER", help="the folder to run in, inside the workspace")]
Artifacts = Annotated[
    list[str] | None, typer.Option("--artifact", metavar="GLOB", help="files to keep; may be repeated")
]
Tty = Annotated[bool, typer.Option("--tty", "-t", help="give the command a terminal")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="print its output, and exit with its status")]
COLUMNS: list[Column] = [
    ("id", lambda row: row.id),
    ("seq", lambda row: row.sequence),
    ("status", lambda row: row.status),
    ("reason", lambda row: row.exit_reason),
    ("exit", lambda row: row.exit_code),
    ("log", lambda row: row.log_bytes),
    ("command", lambda row: shlex.join(row.command)),
]


@app.command()
@with_limits
def submit(
    context: typer.Context,
    session: Annotated[int, typer.Argument(metavar="SESSION", help="the session's id")],
    argv: Argv,
    cwd: Cwd = None,
    env: Variables = None,
    secret: Secrets = None,
    artifact: Artifacts = None,
    tty: Tty = False,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="keep its stdin open for `command stdin`")] = False,
    priority: Annotated[int, typer.Option(help="a higher number runs earlier")] = 0,
    follow: Follow = False,
    limit_options: LimitOptions = NO_LIMITS,
    require: Require = None,
) -> None:
    """Queue a command in a session."""
    call = invocation(context)
    output = call.output()
    request = calls.submit_command(
        session,
        argv,
        cwd=cwd,
        env=given_variables(env, secret),
        limits=limit_options.limits(),
        require=listed(require),
        isolation=limit_options.isolation,
        network=limit_options.network,
        secrets=secret or [],
        artifacts=artifact or [],
        tty=tty,
        stdin=stdin,
        priority=priority,
    )
    with call.backend() as backend:
        if follow:
            raise typer.Exit(run_and_follow(backend, output, lambda: [backend.send(request)]))
        command = backend.ensure_started(backend.send(request))
    output.result(submitted_text(command), command)


@app.command(context_settings={"allow_interspersed_args": False})
@with_limits
def run(
    context: typer.Context,
    argv: Argv,
    commit: Annotated[str, typer.Option(help="branch, tag or commit")] = "HEAD",
    repository: Repository = None,
    patch: Annotated[Path | None, typer.Option(metavar="FILE", help="a patch to apply; - is stdin")] = None,
    manifest: Manifests = None,
    python: Python = None,
    extra: Extras = None,
    group: Groups = None,
    cwd: Cwd = None,
    env: Variables = None,
    secret: Secrets = None,
    artifact: Artifacts = None,
    tty: Tty = False,
    stdin: Annotated[
        bool, typer.Option("--stdin", "-i", help="pass on what you type, or what a pipe or a file has")
    ] = False,
    limit_options: LimitOptions = NO_LIMITS,
    require: Require = None,
) -> None:
    """Open a session, run one command in it and close it. Output and exit status are the command's.

    Example: debug-server command run --commit main -- pytest -q
    """
    call = invocation(context)
    with call.backend() as backend:
        known = chosen_repository(backend, repository, "start_run")
        request = calls.start_run(
            known.name,
            commit,
            argv,
            patch=patch_bytes(patch),
            manifests=manifest or manifests_of(known),
            python=python,
            extras=extra or [],
            groups=group or [],
            cwd=cwd,
            env=given_variables(env, secret),
            limits=limit_options.limits(),
            require=listed(require),
            isolation=limit_options.isolation,
            network=limit_options.network,
            secrets=secret or [],
            artifacts=artifact or [],
            tty=tty,
            stdin=stdin,
        )
        progress(f"opening a workspace of {known.name} at {commit}")
        start = partial(_started, backend, request)
        attach = {"attach": partial(sent_stdin, backend, tty_mode=tty)} if stdin else {}
        raise typer.Exit(run_and_follow(backend, call.output(), start, **attach))


def _started(backend: Backend, request: calls.Call[RunReply]) -> list[CommandReply]:
    return [backend.send(request).command]


@app.command("list")
def list_all(
    context: typer.Context,
    session: Annotated[int, typer.Argument(metavar="SESSION", help="the session's id")],
    limit: Limit = DEFAULT_LIMIT,
    every: All = False,
    after: After = 0,
) -> None:
    """List a session's commands, newest first. `debug-server history` lists those of all sessions."""
    call = invocation(context)
    request = partial(calls.list_commands, session, order=NEWEST)
    with call.backend() as backend:
        part = read_part(backend, request, after=after, limit=limit, every=every)
    show_part(call.output(), part, COLUMNS)


@app.command()
def show(context: typer.Context, command: CommandArgument) -> None:
    """Show a command."""
    call = invocation(context)
    with call.backend() as backend:
        call.output().record(backend.send(calls.get_command(command)))


@app.command()
def cancel(context: typer.Context, command: CommandArgument) -> None:
    """Cancel a command and its process tree. A command that has ended is not changed."""
    call = invocation(context)
    with call.backend() as backend:
        row = backend.send(calls.cancel_command(command))
    call.output().result(f"command {row.id} {state_of(row)} ({row.exit_reason or 'not ended'})", row)


@app.command()
def signal(
    context: typer.Context,
    command: CommandArgument,
    name: Annotated[str, typer.Argument(metavar="SIGNAL", help="a number or a name such as INT")],
) -> None:
    """Send a signal to a command's first process."""
    call = invocation(context)
    with call.backend() as backend:
        reply = backend.send(calls.signal_command(command, signal_number(name)))
    call.output().result(reply.message, reply)


@app.command()
def stdin(
    context: typer.Context,
    command: CommandArgument,
    text: Annotated[str | None, typer.Option(help="the text to write; default: all of stdin")] = None,
    close: Annotated[bool, typer.Option("--close", help="then close the command's stdin")] = False,
) -> None:
    """Write to the stdin of a command that was submitted with --stdin."""
    call = invocation(context)
    with call.backend() as backend:
        for data in [text.encode("utf-8", "surrogateescape")] if text is not None else iter(_own_stdin, b""):
            backend.send(calls.write_stdin(command, data))
        if close:
            backend.send(calls.write_stdin(command, close=True))
    call.output().result(f"written to command {command}", {"command_id": command, "closed": close})


def _own_stdin() -> bytes:
    return os.read(0, 1 << 16)


@app.command()
def wait(
    context: typer.Context,
    command: CommandArgument,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="the longest time to wait, such as 90 (seconds) or 15m")
    ] = None,
) -> None:
    """Wait until a command ends. Exit with its status, or with 75 if it is still running at the timeout."""
    call = invocation(context)
    seconds = duration(timeout, flag="--timeout")
    with call.backend() as backend:
        tell_what_it_waits_for(backend.send(calls.get_command(command)))
        progress(f"waiting for command {command}")
        row = wait_for(backend, command, seconds)
    call.output().result(f"command {row.id} {state_of(row)} ({row.exit_reason or 'not ended'})", row)
    raise typer.Exit(status_of(row) if row.ended else 75)
