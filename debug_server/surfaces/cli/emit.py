"""``debug-server emit``: something happened to a card, or a push; prints who acts on it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from debug_server.errors import InvalidInputError
from debug_server.surfaces.cli.invocation import invocation

app = typer.Typer(add_completion=False)


@app.command()
def emit(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="the card, or the commit")],
    event_type: Annotated[str, typer.Argument(help="created, wip, closed, tick, probe, ..., push, pr, or a skill")],
    repository: Annotated[str, typer.Argument(help="a name of config/repos.yml")],
    field: Annotated[str, typer.Option(help="which field of the card")] = "",
    payload: Annotated[str, typer.Option(help="JSON text; - reads it from stdin")] = "",
    paths: Annotated[str | None, typer.Option(help="changed paths by line, for push and pr; - is stdin")] = None,
    target: Annotated[str | None, typer.Option(help="host:port of the governor; left out: the one here")] = None,
) -> None:
    """Tell the governor; answers as soon as the runners are queued."""
    from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
    from debug_server.surfaces.cli.governor import CALL_SECONDS, channel_to, credentials, target_of

    call = invocation(context)
    text = sys.stdin.read() if payload == "-" else payload
    if paths is not None:
        text = _with_paths(text, paths)
    request = kanban_pb2.IssueEventRequest(
        task_id=task, event_type=event_type, repo_name=repository, field=field, payload=text
    )
    with channel_to(target_of(call, target)) as channel:
        stub: Any = kanban_pb2_grpc.IssueEventStub(channel)  # type: ignore[no-untyped-call]
        answer = stub.Emit(request, timeout=CALL_SECONDS, metadata=credentials(call))
    if not answer.ok:
        raise InvalidInputError(answer.error)
    lines = [f"[event] {event_type} {task} {field}".rstrip(), *answer.message.splitlines()]
    call.output().say("\n".join(lines), {"ok": True, "message": answer.message})


def _with_paths(payload: str, source: str) -> str:
    try:
        lines = (sys.stdin.read() if source == "-" else Path(source).read_text()).splitlines()
        known = json.loads(payload or "{}")
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"--paths {source!r} or --payload cannot be read: {error}") from error
    if not isinstance(known, dict):
        raise InvalidInputError("--payload must be a JSON object when --paths is given")
    return json.dumps({**known, "paths": [line for line in lines if line]})
