"""The table of tools: one for each operation with a single reply, and a few that combine operations for a model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from mcp import types

from debug_server import messages as m
from debug_server.messages import ADMIN, OPERATIONS
from debug_server.service import Caller
from debug_server.surfaces.mcp import messages as t
from debug_server.surfaces.mcp.artifacts import read_part
from debug_server.surfaces.mcp.calls import Call
from debug_server.surfaces.mcp.logs import digest, watch
from debug_server.surfaces.mcp.schemas import input_schema
from debug_server.surfaces.mcp.toolsets import Toolset

R = TypeVar("R", bound=m.Request)
Handler = Callable[[Call, Any], Awaitable[m.Reply]]
IDEMPOTENCY_KEY = "idempotency_key"
_FIRST_WAIT_SECONDS = 1.0  # a command that ends sooner needs no progress
_KEY_SCHEMA = {"type": "string", "description": "A repeated call with the same key is performed once."}

OPERATIONS_WITHOUT_TOOL = {
    "read_log": "a model reads text: the tool read_log is read_log_text, which has the bytes as base64, too",
    "follow_log": "a tool returns once: wait_command follows the log, reports progress and returns a digest",
    "follow_events": "a tool returns once: read_events continues from the cursor `after`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool."""

    name: str
    description: str
    request: type[m.Request]
    run: Handler
    operations: tuple[str, ...]  # the caller needs the scopes of all of them
    toolset: Toolset
    read_only: bool = False
    destructive: bool = False  # may destroy something, or runs what may
    idempotent: bool = False  # a repetition has no further effect
    open_world: bool = False  # reaches what is outside of the server: programs, networks
    takes_key: bool = False
    unlisted: frozenset[str] = frozenset()  # arguments that are taken, but too rare to be listed

    def described(self) -> types.Tool:
        """The tool as the protocol lists it. It has no output schema: the answer is text."""
        schema = input_schema(self.request)
        properties = {**schema["properties"], **({IDEMPOTENCY_KEY: _KEY_SCHEMA} if self.takes_key else {})}
        schema["properties"] = {name: value for name, value in properties.items() if name not in self.unlisted}
        return types.Tool(
            name=self.name, description=self.description, input_schema=schema, annotations=self._annotations()
        )

    def _annotations(self) -> types.ToolAnnotations:
        if self.read_only:  # the protocol gives the other two hints no meaning then
            return types.ToolAnnotations(read_only_hint=True, open_world_hint=self.open_world)
        return types.ToolAnnotations(
            read_only_hint=False,
            destructive_hint=self.destructive,
            idempotent_hint=self.idempotent,
            open_world_hint=self.open_world,
        )

    def is_allowed(self, caller: Caller) -> bool:
        """Whether the caller has the scopes that it needs."""
        return all(caller.holds(OPERATIONS[name].scopes or ()) for name in self.operations)


async def _run(call: Call, request: t.RunArguments) -> m.Reply:
    executed = _narrowed(m.ExecCommand, request)
    executed = executed.model_copy(update={"wait": min(_FIRST_WAIT_SECONDS, request.wait_seconds), "output_bytes": 0})
    began = time.monotonic()
    started = await call.perform("exec_command", executed)
    assert isinstance(started, m.ExecReply)
    command = await watch(call, started.command_id, request.wait_seconds - (time.monotonic() - began))
    found = await digest(call, command.id, request.max_tokens)
    listed = await call.service.artifacts.page(call.caller, m.SessionListRequest(session_id=command.session_id))
    kept = [item for item in listed.items if item.command_id == command.id]
    return t.RunAnswer(command=command, digest=found, session_id=command.session_id, artifacts=kept)


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
    newest = m.SessionListRequest(session_id=request.session_id, limit=request.limit, order="newest")
    listed = await call.service.commands.page(call.caller, newest)
    return t.SessionLogs(
        items=[
            t.CommandDigest(command=command, digest=await digest(call, command.id, request.max_tokens))
            for command in reversed(listed.items)
        ]
    )


async def _diff(call: Call, request: t.DiffArguments) -> m.Reply:
    diff = await call.perform("diff_session", m.SessionRef(session_id=request.session_id))
    assert isinstance(diff, m.SessionDiff)
    return await asyncio.to_thread(t.DiffPart.of, diff, request)  # a patch may have many megabytes


def _narrowed(kind: type[R], request: m.Request) -> R:
    """The fields of the operation's request among a tool's arguments."""
    given = {name: getattr(request, name) for name in kind.model_fields}
    return kind.model_construct(_fields_set=request.model_fields_set & given.keys(), **given)


def _operation_handler(operation: str) -> Handler:
    async def run(call: Call, request: m.Request) -> m.Reply:
        return await call.perform(operation, request)

    return run


def _default_toolset(operation: str) -> Toolset:
    """Of a tool that was not assigned to one."""
    row = OPERATIONS[operation]
    if ADMIN in (row.scopes or ()):
        return Toolset.ADMIN
    noun = row.verb.partition(".")[0]
    by_noun = {"repositories": Toolset.SESSIONS, "sessions": Toolset.SESSIONS, "artifacts": Toolset.ARTIFACTS}
    by_noun |= dict.fromkeys(("events", "health", "tokens"), Toolset.EVENTS)
    return by_noun.get(noun, Toolset.COMMANDS)


def _of(operation: str, name: str, *, note: str = "", toolset: Toolset | None = None, **options: Any) -> Tool:
    """A tool that performs one operation."""
    row = OPERATIONS[operation]
    return Tool(
        **{
            "name": name,
            "description": f"{row.summary} {note}".strip(),
            "request": row.request,
            "run": _operation_handler(operation),
            "operations": (operation,),
            "toolset": toolset or _default_toolset(operation),
            "read_only": row.route.method == "GET",
            "destructive": row.route.method == "DELETE",
            "idempotent": row.idempotent,
            "takes_key": not row.idempotent,
            **options,
        }
    )


def _core(operation: str, name: str, **options: Any) -> Tool:
    return _of(operation, name, toolset=Toolset.CORE, **options)


_KEY = frozenset({IDEMPOTENCY_KEY})  # not worth its tokens where a repetition has no further effect
_RUNS_PROGRAMS: dict[str, Any] = {"destructive": True, "open_world": True}

_ALL = [
    _core(
        "exec_command",
        "run",
        description="Run a command, wait for its end, and get its exit code and a digest of its log. Runs in a session,"
        " else in a fresh workspace of a repository, else in an empty folder. If the wait ends first, the command"
        " continues: call wait_command.",
        request=t.RunArguments,
        run=_run,
        unlisted=frozenset({"log_name", "require", "priority", "metadata", "patch_base64", *t.NOT_OF_RUN}),
        **_RUNS_PROGRAMS,
    ),
    _core(
        "wait_command",
        "wait_command",
        description="Wait for a command to end, and get its exit code and a digest of its log.",
        request=t.WaitArguments,
        run=_wait,
    ),
    _core("cancel_command", "cancel_command", destructive=True),
    _core("write_stdin", "write_stdin", **_RUNS_PROGRAMS),
    _core("read_log_text", "read_log"),
    _core("digest_log", "log_digest", request=m.DigestLog, run=_log_digest),
    _core("find_commands", "find_commands"),
    _core(
        "open_session",
        "session_create",
        note="Commands run in it one after the other, with `run`; close it at the end.",
        request=t.SessionCreateArguments,
        open_world=True,  # fetches the commit, and installs packages
        unlisted=frozenset({"metadata", "requested_by", "commands", "patch_base64"}),
    ),
    _core("get_session", "session_info"),
    _core("list_sessions", "session_list", request=t.SessionListArguments),
    _core("list_commands", "session_commands"),
    Tool(
        name="session_logs",
        description="Digests of the logs of a session's last commands.",
        request=t.SessionLogsArguments,
        run=_session_logs,
        operations=("digest_log", "list_commands"),
        toolset=Toolset.CORE,
        read_only=True,
    ),
    _core("diff_session", "session_diff", request=t.DiffArguments, run=_diff),
    _core("reset_session", "session_reset", note="Changes are lost.", destructive=True, idempotent=True, unlisted=_KEY),
    _core("close_session", "session_close", note="Changes are lost."),
    _core("debug_session", "session_debug", **_RUNS_PROGRAMS),
    _core("register_repository", "repository_init", idempotent=True, open_world=True, unlisted=_KEY),
    _core("list_repositories", "repository_list"),
    _of("fork_session", "session_fork"),
    _of("get_repository", "repository_info"),
    _of("submit_command", "submit_command", note="Returns at once; wait_command waits for its end.", **_RUNS_PROGRAMS),
    _of("start_run", "start_run", note="Returns at once; wait_command waits for its end.", **_RUNS_PROGRAMS),
    _of("rerun_command", "rerun_command", **_RUNS_PROGRAMS),
    _of("get_command", "command_info"),
    _of("signal_command", "signal_command", destructive=True),
    _of("get_artifact", "artifact_info"),
    _of(
        "get_artifact",
        "read_artifact",
        description="Bytes of an artifact from an offset, as text or base64.",
        request=t.ReadArtifactArguments,
        run=read_part,
    ),
    _of("restart_worker", "restart_worker", destructive=True),
    _of("stop_worker", "stop_worker", destructive=True),
]

_performed = {operation for tool in _ALL for operation in tool.operations} | OPERATIONS_WITHOUT_TOOL.keys()
_ALL += [_of(name, name) for name in OPERATIONS if name not in _performed]  # the tools with the name of their operation
TOOLS: dict[str, Tool] = {tool.name: tool for tool in _ALL}
