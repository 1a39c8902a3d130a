"""``debug-server events``: the durable, numbered facts."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.client.replies import EventReply
from debug_server.surfaces.cli.event_stream import show_stream
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Output, cell

app = typer.Typer(add_completion=False)


@app.command()
def events(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="those to come, too, until Ctrl-C")] = False,
    after: Annotated[int, typer.Option(help="an event's number: those that follow it")] = 0,
    limit: Annotated[int, typer.Option(help="how many at most, without --follow")] = 100,
    session: Annotated[int | None, typer.Option(help="of this session only")] = None,
    command: Annotated[int | None, typer.Option(help="of this command only")] = None,
    kind: Annotated[str | None, typer.Option(help="of this kind only")] = None,
    repo: Annotated[str | None, typer.Option(help="cards and runners of this repository; * is every one")] = None,
    task: Annotated[str, typer.Option(help="with --repo: of this card only")] = "",
    event_type: Annotated[str, typer.Option("--type", help="with --repo: of types that begin so")] = "",
    cursor: Annotated[str, typer.Option(help="with --repo: those after the event that had this one")] = "",
    target: Annotated[str | None, typer.Option(help="with --repo: host:port of the governor")] = None,
) -> None:
    """What happened."""
    call = invocation(context)
    if repo is not None:
        wish = {"repo_filter": "" if repo == "*" else repo, "task_filter": task, "event_type_filter": event_type}
        show_stream(call, target=target, follow=follow, cursor=cursor, **wish)
        return
    output = call.output()
    with call.backend() as backend:
        if follow:
            for event in backend.follow_events(after=after, session_id=session, command_id=command, kind=kind):
                _show(output, event)
            return
        page = backend.send(
            calls.read_events(after=after, limit=limit, session_id=session, command_id=command, kind=kind)
        )
    for event in page:
        _show(output, event)


def _show(output: Output, event: EventReply) -> None:
    subject = [
        f"{name} {value}" for name, value in (("session", event.session_id), ("command", event.command_id)) if value
    ]
    words = [str(event.seq), event.created_at.isoformat(), event.kind, *subject, event.subject or ""]
    output.say(cell(" ".join(word for word in [*words, cell(event.data) if event.data else ""] if word)), event)
