"""Events of cards and runners in a terminal: one line each, or JSON."""

from __future__ import annotations

import json
from typing import Any

from debug_server.surfaces.cli.invocation import Invocation
from debug_server.surfaces.cli.output import Output, cell


def show_stream(call: Invocation, *, target: str | None, **wish: Any) -> None:
    """Print what the governor's stream tells until it ends."""
    from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
    from debug_server.surfaces.cli.governor import channel_to, credentials, target_of

    output = call.output()
    with channel_to(target_of(call, target)) as channel:
        stub: Any = kanban_pb2_grpc.IssueEventStub(channel)  # type: ignore[no-untyped-call]
        for event in stub.Stream(kanban_pb2.StreamRequest(**wish), metadata=credentials(call)):
            _show(output, event)


def _show(output: Output, event: Any) -> None:
    names = ("task_id", "repo_name", "event_type", "field", "payload", "timestamp", "cursor")
    value = {name: getattr(event, name) for name in names}
    words = [event.timestamp, event.repo_name, event.task_id, event.event_type, _said(event)]
    output.say(cell(" ".join(word for word in words if word)), value)


def _said(event: Any) -> str:
    """The part of a payload that people want to read."""
    if not event.event_type.startswith("runner."):
        return str(event.field)
    payload = json.loads(event.payload)
    if "chunk" in payload:
        return str(payload["chunk"]).rstrip("\n")
    words = [str(event.field)]
    if payload.get("exit_code") is not None:
        words.append(f"status {payload['exit_code']}")
    elif payload.get("reason"):
        words.append(str(payload["reason"]))
    if payload.get("stderr"):
        words.append(f"| {str(payload['stderr']).strip()[-400:]}")
    return " ".join(words)
