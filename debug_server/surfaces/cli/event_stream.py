"""Events of cards and runners in a terminal: one line each, or JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Generator
from contextlib import closing
from typing import Any

from debug_server.client.following import RECONNECT_SECONDS
from debug_server.errors import NotFoundError, UnavailableError
from debug_server.surfaces.cli.invocation import Invocation
from debug_server.surfaces.cli.output import Output, cell, progress

_RETRY_SECONDS = 0.5


def show_stream(
    call: Invocation, *, target: str | None, follow: bool, cursor: str, limit: int | None, **filters: str
) -> None:
    """Print the governor's events until the stream ends; with ``follow``, reconnect when the governor restarts."""
    output = call.output()
    _check_repository(call, target, filters["repo_filter"])
    left = math.inf if limit is None else limit
    answered: float | None = None  # when, on the monotonic clock
    while True:
        try:
            for event in _events(call, target, follow=follow, cursor=cursor, **filters):
                show_event(output, event)
                cursor, answered = event.cursor, time.monotonic()
                left -= 1
                if not left:
                    return
            answered = time.monotonic()
        except UnavailableError:
            if not follow or answered is None or time.monotonic() - answered > RECONNECT_SECONDS:
                raise
        if not follow:
            return
        progress("the governor does not answer: retrying")
        time.sleep(_RETRY_SECONDS)


def _check_repository(call: Invocation, target: str | None, name: str) -> None:
    """NotFoundError for a repository that is not configured and has no events: its name is probably mistyped."""
    from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
    from debug_server.surfaces.cli.governor import CALL_SECONDS, channel_to, credentials, target_of

    if not name:
        return
    try:
        address = target_of(call, target)
        with channel_to(call, address) as channel:
            stub: Any = kanban_pb2_grpc.RepoRegistryStub(channel)  # type: ignore[no-untyped-call]
            stub.GetRepo(
                kanban_pb2.GetRepoRequest(name=name), timeout=CALL_SECONDS, metadata=credentials(call, address)
            )
    except NotFoundError:
        with closing(_events(call, target, repo_filter=name)) as history:
            if next(history, None) is None:
                raise NotFoundError(
                    f"repository {name!r} is not in config/repos.yml and has no events: check the name, or use *"
                ) from None


def _events(call: Invocation, target: str | None, **filters: Any) -> Generator[Any, None, None]:
    from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
    from debug_server.surfaces.cli.governor import channel_to, credentials, target_of

    address = target_of(call, target)
    with channel_to(call, address) as channel:
        stub: Any = kanban_pb2_grpc.IssueEventStub(channel)  # type: ignore[no-untyped-call]
        yield from stub.Stream(kanban_pb2.StreamRequest(**filters), metadata=credentials(call, address))


def show_event(output: Output, event: Any) -> None:
    """One event of a card or a runner."""
    names = ("task_id", "repo_name", "event_type", "field", "payload", "timestamp", "cursor")
    value = {name: getattr(event, name) for name in names}
    words = [event.timestamp, event.repo_name, event.task_id, event.event_type]
    lines = [" ".join(cell(word) for word in [*words, said] if word) for said in _payload_lines(event)]
    output.result("\n".join(lines), value)


def _payload_lines(event: Any) -> list[str]:
    """The readable part of a payload, as lines."""
    if not event.event_type.startswith("runner."):
        return [str(event.field)]
    payload = json.loads(event.payload)
    if "chunk" in payload:
        return _lines(str(payload["chunk"])) or [""]
    words = [str(event.field)]
    if payload.get("exit_code") is not None:
        words.append(f"status {payload['exit_code']}")
    elif payload.get("reason"):
        words.append(": ".join(str(payload[name]) for name in ("reason", "message") if payload.get(name)))
    if payload.get("stderr"):
        words += ["|", " | ".join(_lines(str(payload["stderr"]).strip()))[-400:]]
    return [" ".join(words)]


def _lines(text: str) -> list[str]:
    """The lines of a text with tabs expanded."""
    return [line.expandtabs() for line in text.splitlines()]
