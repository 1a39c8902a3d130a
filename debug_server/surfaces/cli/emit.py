"""``debug-server emit``: sends an event of a card or a push; prints which runners act on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from debug_server.errors import InvalidInputError
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import cell, print_notice

app = CommandsApp()
_NO_RUNNER_STATUS = 1
_NO_MATCH = "[runner] unknown skipped"


@app.command()
def emit(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="the card, or the commit")],
    event_type: Annotated[str, typer.Argument(help="created, wip, closed, tick, probe, ..., push, pr, or a skill")],
    repository: Annotated[str, typer.Argument(help="a name of config/repos.yml")],
    field: Annotated[str, typer.Option(help="the field of the card that changed")] = "",
    payload: Annotated[str, typer.Option(help="JSON text; - reads it from stdin")] = "",
    paths: Annotated[
        str | None, typer.Option(help="for push and pr: a file with the changed paths, one per line; - is stdin")
    ] = None,
    target: Annotated[str | None, typer.Option(help="host:port of the governor; default: that of this folder")] = None,
) -> None:
    """Send an event to the server (the governor), which queues the runners that it concerns.

    Exit with 1 if no runner was queued; a push or pr that matches no trigger is not an error.
    """
    from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
    from debug_server.surfaces.cli.governor import CALL_SECONDS, channel_to, credentials, target_of

    call = invocation(context)
    if payload == paths == "-":
        raise InvalidInputError("--payload and --paths cannot both be stdin: write one of them to a file")
    text = _text(_read(payload, "--payload")) if payload == "-" else payload
    # One path per line, as git writes them; other line separators, such as U+2028, are part of a name.
    changed = [] if paths is None else [_path(line) for line in _read(paths, "--paths").split(b"\n") if line]
    try:
        request = kanban_pb2.IssueEventRequest(
            task_id=task, event_type=event_type, repo_name=repository, field=field, payload=text, paths=changed
        )
    except ValueError as error:
        raise InvalidInputError(f"an argument is not UTF-8 text: {error}") from error
    address = target_of(call, target)
    with channel_to(call, address) as channel:
        stub: Any = kanban_pb2_grpc.IssueEventStub(channel)  # type: ignore[no-untyped-call]
        answer = stub.Emit(request, timeout=CALL_SECONDS, metadata=credentials(call, address))
    if not answer.ok:
        raise InvalidInputError(answer.error)
    outcomes = answer.message.splitlines()
    lines = [f"[event] {event_type} {task} {field}".rstrip(), *outcomes]
    call.output().result("\n".join(lines), {"ok": True, "message": answer.message})
    if not _acted_on(event_type, outcomes):
        raise typer.Exit(_NO_RUNNER_STATUS)


def _read(source: str, option: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{option} {source!r} cannot be read: {error}") from error


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"--payload is not UTF-8 text: {error}") from error


def _path(name: bytes) -> str:
    """Escape a name that is not UTF-8, so that one file does not prevent the event."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        escaped = name.decode(errors="backslashreplace")
        print_notice(f"a path is not UTF-8 text and is sent as {cell(escaped)}")
        return escaped


def _acted_on(event_type: str, outcomes: list[str]) -> bool:
    """Whether a runner was queued; a push without a matching trigger counts as success."""
    if any(line.endswith(" queued") for line in outcomes):
        return True
    return event_type in ("push", "pr") and all(line.startswith(_NO_MATCH) for line in outcomes)
