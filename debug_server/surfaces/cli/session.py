"""``debug-server session``: workspaces in which commands run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.client.session_logs import session_commands, session_pieces
from debug_server.errors import PatchApplicationError
from debug_server.messages import CommandReply, SessionReply
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.environment_options import Extras, Groups, Manifests, Python
from debug_server.surfaces.cli.following import run_and_follow, submitted_text
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.log_lines import LogFormat, log_for, show
from debug_server.surfaces.cli.log_views import (
    Context,
    Digest,
    Grep,
    IgnoreCase,
    MaxTokens,
    PatternSearch,
    Tail,
    print_digest,
    print_matches,
    print_no_match,
    refuse_together,
    tail_start,
)
from debug_server.surfaces.cli.outcome import WRONG_USE
from debug_server.surfaces.cli.output import Column, Output, print_notice, progress, without_controls, write_line
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, NEWEST, After, All, Limit, read_part, show_part
from debug_server.surfaces.cli.remotes import Repository, RepositoryName, chosen_repository, manifests_of
from debug_server.surfaces.cli.variable_options import Variables, given_variables
from debug_server.surfaces.cli.words import duration, json_pairs, listed, one_of, patch_bytes

app = CommandsApp(no_args_is_help=True, help="Workspaces in which commands run.")
SessionArgument = Annotated[int, typer.Argument(metavar="SESSION", help="the session's id")]
_STATUSES = ("open", "closed", "pending", "running", "completed", "failed", "cancelled")
COLUMNS: list[Column] = [
    ("id", lambda row: row.id),
    ("status", lambda row: "open" if row.is_open else row.status),
    ("commit", lambda row: (row.commit_sha or "-")[:12]),
    ("patch", lambda row: (row.patch_hash or "-")[:12]),
    ("by", lambda row: row.requested_by),
    ("created", lambda row: row.created_at),
]


@app.command()
def create(
    context: typer.Context,
    commit: Annotated[str, typer.Option(help="branch, tag or commit")] = "HEAD",
    repository: Repository = None,
    patch: Annotated[Path | None, typer.Option(metavar="FILE", help="a patch to apply; - is stdin")] = None,
    command: Annotated[
        list[str] | None, typer.Option(metavar="LINE", help="a line for the shell to run; may be repeated")
    ] = None,
    env: Variables = None,
    cwd: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="the folder of these commands, inside the workspace")
    ] = None,
    metadata: Annotated[list[str] | None, typer.Option(help="KEY=VALUE; may be repeated")] = None,
    manifest: Manifests = None,
    python: Python = None,
    extra: Extras = None,
    group: Groups = None,
    expires_in: Annotated[
        str | None, typer.Option(metavar="TIME", help="close the session after this time, such as 2h")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="print output until all commands have ended")] = False,
) -> None:
    """Open a session and queue commands in it. With --follow, exit with the first status that is not 0.

    Example: debug-server session create --command "make build" --command "make test" --follow
    """
    call = invocation(context)
    with call.backend() as backend:
        known = chosen_repository(backend, repository, "open_session")
        progress(f"opening a workspace of {known.name} at {commit}")
        asked = calls.open_session(
            known.name,
            commit,
            patch=patch_bytes(patch),
            metadata=json_pairs(metadata, flag="--metadata"),
            expires_in=duration(expires_in, flag="--expires-in"),
            manifests=manifest or manifests_of(known),
            python=python,
            extras=extra or [],
            groups=group or [],
            commands=command or [],
            env=given_variables(env, None),
            cwd=cwd,
        )
        output = call.output()
        opened: list[SessionReply] = []
        start = partial(_open, backend, output, asked, opened)
        try:
            status = run_and_follow(backend, output, start) if follow else _print_submitted(backend, output, start())
        except PatchApplicationError as error:  # a wrong value of --patch: no command has run
            call.report(error)
            raise typer.Exit(WRONG_USE) from error
    for session in opened if follow else ():
        print_notice(f"session {session.id} stays open: debug-server session close {session.id}")
    raise typer.Exit(status)


def _open(
    backend: Backend, output: Output, asked: calls.Call[SessionReply], opened: list[SessionReply]
) -> list[CommandReply]:
    """Open a session with its commands, and list them: the server knows which shell runs them."""
    session = backend.send(asked)
    opened.append(session)
    output.result(f"session {session.id} is open at {(session.commit_sha or '')[:12]}", session)
    if not asked.fields.get("commands"):
        return []
    return backend.send(calls.list_commands(session.id, limit=len(asked.fields["commands"]))).items


def _print_submitted(backend: Backend, output: Output, submitted: Sequence[CommandReply]) -> int:
    for command in submitted:
        current = backend.ensure_started(command)
        output.result(submitted_text(current), current)
    return 0


@app.command("list")
def list_all(
    context: typer.Context,
    status: Annotated[
        list[str] | None,
        typer.Option(help="open, closed, pending, running, completed, failed or cancelled; may be repeated"),
    ] = None,
    repo: RepositoryName = None,
    limit: Limit = DEFAULT_LIMIT,
    every: All = False,
    after: After = 0,
) -> None:
    """List the sessions that you may see, newest first."""
    call = invocation(context)
    wanted = one_of(listed(status), flag="--status", known=_STATUSES)
    request = partial(calls.list_sessions, status=wanted, repository=repo, order=NEWEST)
    with call.backend() as backend:
        part = read_part(backend, request, after=after, limit=limit, every=every)
    show_part(call.output(), part, COLUMNS)


@app.command("show")
def show_one(context: typer.Context, session: SessionArgument) -> None:
    """Show a session."""
    call = invocation(context)
    with call.backend() as backend:
        call.output().record(backend.send(calls.get_session(session)))


@app.command()
def logs(
    context: typer.Context,
    session: SessionArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="wait until all commands have ended")] = False,
    format_: Annotated[
        LogFormat, typer.Option("--format", help="lines with time and stream, or JSON")
    ] = LogFormat.TEXT,
    raw: Annotated[bool, typer.Option("--raw", help="the bytes as they are")] = False,
    tail: Tail = None,
    grep: Grep = None,
    ignore_case: IgnoreCase = False,
    context_lines: Context = 0,
    digest: Digest = False,
    max_tokens: MaxTokens = None,
) -> None:
    """Print the output of a session's commands, in order. --tail, --grep and --digest are applied to each command."""
    refuse_together("--digest" if digest else None, {"--grep": grep, "--tail": tail})
    refuse_together("--digest" if digest else "--grep" if grep else None, {"--follow": follow, "--raw": raw})
    call = invocation(context)
    output = call.output()
    log = log_for(LogFormat.JSON if call.as_json else format_, raw=raw)
    with call.backend() as backend:
        backend.send(calls.get_session(session))
        if digest:
            for command in session_commands(backend, session):
                if not call.as_json:
                    write_line(_title(command))
                print_digest(backend, output, command.id, max_tokens)
        elif grep is not None:
            search = PatternSearch(pattern=grep, ignore_case=ignore_case, context=context_lines)
            found = False
            for command in session_commands(backend, session):
                start = tail_start(backend, command.id, tail)
                found |= print_matches(backend, output, command.id, search, offset=start, title=_title(command))
            if not found:
                print_no_match(grep)
                raise typer.Exit(1)
        else:
            show(session_pieces(backend, session, follow=follow, start=partial(tail_start, backend, lines=tail)), log)


def _title(command: CommandReply) -> str:
    return without_controls(
        f"command {command.id}, {command.exit_reason or command.status}: {shlex.join(command.command)}"
    )


@app.command()
def debug(
    context: typer.Context,
    session: SessionArgument,
    action: Annotated[str, typer.Option(help="the action for the debugger")] = "open",
    payload: Annotated[list[str] | None, typer.Option(help="KEY=VALUE; may be repeated")] = None,
) -> None:
    """Send a request to the session's debugger."""
    call = invocation(context)
    with call.backend() as backend:
        reply = backend.send(calls.debug_session(session, action=action, payload=json_pairs(payload, flag="--payload")))
    call.output().result(reply.message, reply)


@app.command()
def diff(context: typer.Context, session: SessionArgument) -> None:
    """Print the session's changes as a patch for its commit."""
    call = invocation(context)
    with call.backend() as backend:
        if call.as_json:
            call.output().record(backend.send(calls.diff_session(session)))
            return
        patch = memoryview(backend.send(calls.session_patch(session)))
    while patch:
        patch = patch[os.write(1, patch) :]


@app.command()
def reset(context: typer.Context, session: SessionArgument) -> None:
    """Reset the workspace to the session's commit and patch."""
    call = invocation(context)
    with call.backend() as backend:
        row = backend.send(calls.reset_session(session))
    call.output().result(f"session {row.id} was reset", row)


@app.command()
def fork(
    context: typer.Context,
    session: SessionArgument,
    count: Annotated[int, typer.Option(help="number of copies")] = 1,
) -> None:
    """Open copies of a session in its current state."""
    call = invocation(context)
    with call.backend() as backend:
        found = backend.send(calls.fork_session(session, count=count))
    call.output().table(found.items, COLUMNS)


@app.command()
def close(context: typer.Context, session: SessionArgument) -> None:
    """Cancel a session's commands and release its workspace. Changes in it are lost: save them with `session diff`."""
    call = invocation(context)
    with call.backend() as backend:
        reply = backend.send(calls.close_session(session))
    call.output().result(reply.message, reply)
