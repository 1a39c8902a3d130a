"""The table of tools: one for each operation with a single reply, and a few that combine operations for a model."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp import types

from debug_server import messages as m
from debug_server.messages import OPERATIONS
from debug_server.surfaces.mcp import messages as t
from debug_server.surfaces.mcp.artifacts import read_part
from debug_server.surfaces.mcp.calls import Call
from debug_server.surfaces.mcp.logs import digest, watch

Handler = Callable[[Call, Any], Awaitable[m.Reply]]
IDEMPOTENCY_KEY = "idempotency_key"
_PAGE = 1000
_KEY_SCHEMA = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "description": "A repeated call with the same key is not performed again; it returns the first reply.",
}

OPERATIONS_WITHOUT_TOOL = {
    "read_log": "a model reads text: the tool read_log is read_log_text, which has the bytes as base64, too",
    "follow_log": "a tool returns once: wait_command follows the log, reports progress and returns a digest",
    "follow_events": "a tool returns once: read_events continues from the cursor `after`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool; ``operation`` is None for a tool that only combines others."""

    name: str
    description: str
    request: type[m.Request]
    reply: type[m.Reply]
    run: Handler
    operation: str | None = None
    read_only: bool = False
    destructive: bool = False
    takes_key: bool = False

    def described(self) -> types.Tool:
        """The tool as the protocol lists it, with the schemas of its messages."""
        schema = self.request.model_json_schema()
        if self.takes_key:
            schema["properties"] = {**schema.get("properties", {}), IDEMPOTENCY_KEY: _KEY_SCHEMA}
        return types.Tool(
            name=self.name,
            description=self.description,
            input_schema=_brief({"properties": {}, **schema}),
            output_schema=_brief(self.reply.model_json_schema(mode="serialization")),
            annotations=types.ToolAnnotations(
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.read_only
                or (self.operation is not None and OPERATIONS[self.operation].idempotent),
                open_world_hint=False,
            ),
        )


def _brief(schema: Any) -> Any:
    """Remove the titles, which repeat the names: a model reads all schemas before its first call."""
    if isinstance(schema, list):
        return [_brief(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _brief(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}


async def _run(call: Call, request: t.RunArguments) -> m.Reply:
    started = await call.perform("start_run", _narrowed(m.StartRun, request))
    assert isinstance(started, m.RunReply)
    if not call.may_read_logs():
        return t.RunAnswer(command=started.command, digest=None, session_id=started.session.id, artifacts=[])
    command = await watch(call, started.command.id, request.wait_seconds)
    found = await digest(call, command.id, request.max_tokens)
    listed = await call.service.artifacts.page(call.caller, m.SessionListRequest(session_id=command.session_id))
    return t.RunAnswer(command=command, digest=found, session_id=command.session_id, artifacts=listed.items)


async def _wait(call: Call, request: t.WaitArguments) -> m.Reply:
    call.require("wait_command")
    command = await watch(call, request.command_id, request.wait_seconds)
    return t.CommandDigest(command=command, digest=await digest(call, command.id, request.max_tokens))


async def _log_digest(call: Call, request: m.DigestLog) -> m.Reply:
    call.require("digest_log")
    command = await call.service.commands.get(call.caller, m.CommandRef(command_id=request.command_id))
    return t.CommandDigest(command=command, digest=await digest(call, command.id, request.max_tokens))


async def _session_logs(call: Call, request: t.SessionLogsArguments) -> m.Reply:
    call.require("digest_log", "list_commands")
    last: deque[m.CommandReply] = deque(maxlen=request.limit)
    after: int | None = 0
    while after is not None:
        page = m.SessionListRequest(session_id=request.session_id, after=after, limit=_PAGE)
        listed = await call.service.commands.page(call.caller, page)
        last.extend(listed.items)
        after = listed.next_after
    return t.SessionLogs(
        items=[
            t.CommandDigest(command=command, digest=await digest(call, command.id, request.max_tokens))
            for command in last
        ]
    )


def _narrowed(kind: type[m.Request], request: m.Request) -> m.Request:
    """The fields of the operation's request among a tool's arguments."""
    return kind.model_construct(**{name: getattr(request, name) for name in kind.model_fields})


def _operation_handler(operation: str) -> Handler:
    async def run(call: Call, request: m.Request) -> m.Reply:
        return await call.perform(operation, request)

    return run


def _of(operation: str, name: str, *, destructive: bool = False, note: str = "") -> Tool:
    """A tool that performs one operation."""
    row = OPERATIONS[operation]
    return Tool(
        name=name,
        description=f"{row.summary} {note}".strip(),
        request=row.request,
        reply=row.reply,
        run=_operation_handler(operation),
        operation=operation,
        read_only=row.route.method == "GET",
        destructive=destructive,
        takes_key=not row.idempotent,
    )


_ALL = [
    Tool(
        name="run",
        description="Run one command on a commit (and a patch) of a repository: opens a session, runs, closes it, and"
        " answers with the exit code and a digest of the log. A call that is cut off leaves the command running:"
        " session_list finds it.",
        request=t.RunArguments,
        reply=t.RunAnswer,
        run=_run,
        operation="start_run",
        takes_key=True,
    ),
    _of("register_repository", "repository_init"),
    _of("get_repository", "repository_info"),
    _of("list_repositories", "repository_list"),
    _of("remove_repository", "repository_remove", destructive=True),
    _of(
        "open_session",
        "session_create",
        note="Several commands can run in it one after the other; close it at the end.",
    ),
    _of("get_session", "session_info"),
    _of("list_sessions", "session_list"),
    _of("list_commands", "session_commands"),
    Tool(
        name="session_logs",
        description="Digests of the logs of a session's last commands.",
        request=t.SessionLogsArguments,
        reply=t.SessionLogs,
        run=_session_logs,
        read_only=True,
    ),
    _of("debug_session", "session_debug"),
    _of("diff_session", "session_diff"),
    _of("reset_session", "session_reset", destructive=True, note="Changes are lost."),
    _of("fork_session", "session_fork"),
    _of("close_session", "session_close", destructive=True),
    _of("submit_command", "submit_command", note="Returns at once; wait_command waits until it ends."),
    _of("get_command", "command_info"),
    Tool(
        name="wait_command",
        description="Wait for a command to end, with progress, and answer with its exit code and a digest of its log.",
        request=t.WaitArguments,
        reply=t.CommandDigest,
        run=_wait,
        operation="wait_command",
        read_only=True,
    ),
    _of("cancel_command", "cancel_command", destructive=True),
    _of("signal_command", "signal_command", destructive=True),
    _of("write_stdin", "write_stdin"),
    _of("read_log_text", "read_log"),
    Tool(
        name="log_digest",
        description="Digest of a log so far: first error, failing tests, tracebacks, repeats, first and last lines.",
        request=m.DigestLog,
        reply=t.CommandDigest,
        run=_log_digest,
        operation="digest_log",
        read_only=True,
    ),
    _of("list_artifacts", "list_artifacts"),
    _of("get_artifact", "artifact_info"),
    Tool(
        name="read_artifact",
        description="Bytes of an artifact from an offset, as text or base64.",
        request=t.ReadArtifactArguments,
        reply=t.ArtifactPart,
        run=read_part,
        read_only=True,
    ),
    _of("read_events", "read_events"),
    _of("list_leases", "list_leases"),
    _of("list_workers", "list_workers"),
    _of("restart_worker", "restart_worker", destructive=True),
    _of("reset_worker", "reset_worker"),
    _of("stop_worker", "stop_worker", destructive=True),
    _of("create_token", "create_token"),
    _of("list_tokens", "list_tokens"),
    _of("revoke_token", "revoke_token", destructive=True),
    _of("who_am_i", "who_am_i"),
    _of("health", "health"),
]

_rendered = {tool.operation for tool in _ALL} | OPERATIONS_WITHOUT_TOOL.keys()
_ALL += [_of(name, name) for name in OPERATIONS if name not in _rendered]  # the tools with the name of their operation
TOOLS: dict[str, Tool] = {tool.name: tool for tool in _ALL}
