"""``debug-server events``: the durable, numbered facts."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.errors import InvalidInputError
from debug_server.messages import EventReply
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.event_stream import show_stream
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Output, cell

app = CommandsApp()
_PAGE = 100


@app.command()
def events(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="print new events until Ctrl-C")] = False,
    after: Annotated[int, typer.Option(min=0, help="print the events after this number")] = 0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="maximum number; default: 100, or all with --follow or --repo")
    ] = None,
    session: Annotated[int | None, typer.Option(help="only events of this session")] = None,
    command: Annotated[int | None, typer.Option(help="only events of this command")] = None,
    kind: Annotated[str | None, typer.Option(help="only kinds that begin with this")] = None,
    repo: Annotated[str | None, typer.Option(help="events of cards and runners of this repository; * for all")] = None,
    task: Annotated[str, typer.Option(help="with --repo: only this card")] = "",
    event_type: Annotated[str, typer.Option("--type", help="with --repo: only types that begin with this")] = "",
    cursor: Annotated[str, typer.Option(help="with --repo: print the events after this cursor")] = "",
    target: Annotated[str | None, typer.Option(help="with --repo: host:port of the governor")] = None,
) -> None:
    """Print events."""
    call = invocation(context)
    _check(
        of_engine={"session": session, "command": command, "kind": kind},
        of_cards={"task": task, "type": event_type, "cursor": cursor, "target": target},
        cards=repo is not None,
    )
    if after and cursor:
        raise InvalidInputError("--after and --cursor both say where to begin: give one of them")
    if repo is not None:
        if after:
            cursor = str(after)  # the number of an event is also a valid cursor
        filters = {"repo_filter": "" if repo == "*" else repo, "task_filter": task, "event_type_filter": event_type}
        show_stream(call, target=target, follow=follow, cursor=cursor, limit=limit, **filters)
        return
    output = call.output()
    with call.backend() as backend:
        if follow:
            found = backend.follow_events(after=after, session_id=session, command_id=command, kind=kind)
            for event in islice(found, limit):
                show_event(output, event)
            return
        page = backend.send(
            calls.read_events(after=after, limit=limit or _PAGE, session_id=session, command_id=command, kind=kind)
        )
    for event in page:
        show_event(output, event)


def _check(*, of_engine: dict[str, object], of_cards: dict[str, object], cards: bool) -> None:
    """Refuse an option that does not apply to the requested events: if it were ignored, wrong events would be shown."""
    for name, value in (of_engine if cards else of_cards).items():
        if value not in (None, ""):
            fix = "filter with --task and --type" if cards else "use --repo '*' for all repositories"
            raise InvalidInputError(f"--{name} {'cannot be used with' if cards else 'needs'} --repo: {fix}")


def show_event(output: Output, event: EventReply) -> None:
    """One event of the engine."""
    subject = [
        f"{name} {value}" for name, value in (("session", event.session_id), ("command", event.command_id)) if value
    ]
    words = [str(event.seq), event.created_at.isoformat(), event.kind, *subject, event.subject or ""]
    output.result(cell(" ".join(word for word in [*words, cell(event.data) if event.data else ""] if word)), event)
