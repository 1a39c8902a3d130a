"""The table of operations: name, verb of the service, route, messages, scopes, and whether it takes an idempotency key.

The service performs the operations, every surface offers them and the client calls them; tests compare all with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.messages import base, commands, digest, execs, logs, operators, sessions
from debug_server.messages.routes import Route
from debug_server.messages.scopes import ADMIN, ARTIFACTS_READ, COMMANDS_WRITE, SESSIONS_READ, SESSIONS_WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A request and its reply."""

    name: str
    request: type[base.Request]
    reply: type[base.Reply]
    scopes: tuple[str, ...] | None  # None: needs no authentication
    idempotent: bool  # a repetition has no further effect; False: it takes an idempotency key
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOperation(Operation):
    """One row of the table."""

    verb: str  # a member of Service and the name of its method: sessions.open
    route: Route
    stream: bool = False  # yields many replies


def _row(
    name: str,
    verb: str,
    line: str,
    messages: tuple[type[base.Request], type[base.Reply]],
    summary: str,
    *scopes: str,
    keyed: bool = False,
    stream: bool = False,
) -> ServiceOperation:
    return ServiceOperation(
        name=name,
        verb=verb,
        route=Route.of(line),
        request=messages[0],
        reply=messages[1],
        summary=summary,
        scopes=scopes,
        idempotent=not keyed,
        stream=stream,
    )


_READ_LOGS = (SESSIONS_READ, ARTIFACTS_READ)
_RUN = (COMMANDS_WRITE, SESSIONS_WRITE)

_ROWS = (
    _row(
        "register_repository",
        "repositories.register",
        "POST /repository/init 201",
        (sessions.RegisterRepository, sessions.RepositoryReply),
        "Register a git remote.",
        ADMIN,
        keyed=True,
    ),
    _row(
        "list_repositories",
        "repositories.page",
        "GET /repository",
        (base.ListRequest, sessions.RepositoryList),
        "List the repositories.",
        SESSIONS_READ,
    ),
    _row(
        "get_repository",
        "repositories.get",
        "GET /repository/{name}",
        (sessions.RepositoryRef, sessions.RepositoryReply),
        "Get a repository by name.",
        SESSIONS_READ,
    ),
    _row(
        "remove_repository",
        "repositories.remove",
        "DELETE /repository/{name}",
        (sessions.RepositoryRef, base.Message),
        "Remove a repository, its mirror and its workspaces; the history of its sessions stays.",
        ADMIN,
    ),
    _row(
        "open_session",
        "sessions.open",
        "POST /sessions 201",
        (sessions.OpenSession, sessions.SessionReply),
        "Open a session: lease a workspace of a commit and a patch.",
        SESSIONS_WRITE,
        keyed=True,
    ),
    _row(
        "list_sessions",
        "sessions.page",
        "GET /sessions",
        (sessions.ListSessions, sessions.SessionList),
        "List the caller's sessions; an admin sees all sessions.",
        SESSIONS_READ,
    ),
    _row(
        "get_session",
        "sessions.get",
        "GET /sessions/{session_id}",
        (sessions.SessionRef, sessions.SessionReply),
        "Get a session.",
        SESSIONS_READ,
    ),
    _row(
        "close_session",
        "sessions.close",
        "DELETE /sessions/{session_id}",
        (sessions.SessionRef, base.Message),
        "Close a session: cancel its commands and release its workspace.",
        SESSIONS_WRITE,
    ),
    _row(
        "fork_session",
        "sessions.fork",
        "POST /sessions/{session_id}/fork 201",
        (sessions.ForkSession, sessions.SessionList),
        "Open copies of a session in its current state.",
        SESSIONS_WRITE,
        keyed=True,
    ),
    _row(
        "reset_session",
        "sessions.reset",
        "POST /sessions/{session_id}/reset",
        (sessions.SessionRef, sessions.SessionReply),
        "Reset the workspace to its commit and patch.",
        SESSIONS_WRITE,
        keyed=True,
    ),
    _row(
        "diff_session",
        "sessions.diff",
        "GET /sessions/{session_id}/diff",
        (sessions.SessionRef, sessions.SessionDiff),
        "Get the changes in the workspace as a patch.",
        SESSIONS_READ,
    ),
    _row(
        "submit_command",
        "commands.submit",
        "POST /sessions/{session_id}/commands 201",
        (commands.SubmitCommand, commands.CommandReply),
        "Queue a command in a session.",
        *_RUN,
        keyed=True,
    ),
    _row(
        "list_commands",
        "commands.page",
        "GET /sessions/{session_id}/commands",
        (commands.SessionListRequest, commands.CommandList),
        "List a session's commands in order.",
        SESSIONS_READ,
    ),
    _row(
        "list_artifacts",
        "artifacts.page",
        "GET /sessions/{session_id}/artifacts",
        (commands.SessionListRequest, logs.ArtifactList),
        "List a session's artifacts.",
        *_READ_LOGS,
    ),
    _row(
        "get_artifact",
        "artifacts.get",
        "GET /sessions/{session_id}/artifacts/{artifact_id}/info",
        (logs.ArtifactRef, logs.ArtifactReply),
        "Get an artifact's metadata.",
        *_READ_LOGS,
    ),
    _row(
        "debug_session",
        "sessions.debug",
        "POST /sessions/{session_id}/debug",
        (operators.DebugAction, base.Message),
        "Send an action to a session's debugger.",
        SESSIONS_WRITE,
        keyed=True,
    ),
    _row(
        "start_run",
        "runs.start",
        "POST /runs 201",
        (commands.StartRun, commands.RunReply),
        "Open a session, run a command and close the session.",
        *_RUN,
        keyed=True,
    ),
    _row(
        "exec_command",
        "execs.run",
        "POST /exec",
        (execs.ExecCommand, execs.ExecReply),
        "Run a command, wait for its end and answer with its output.",
        *_RUN,
        *_READ_LOGS,
        keyed=True,
    ),
    _row(
        "find_commands",
        "commands.find",
        "GET /commands",
        (commands.FindCommands, commands.FoundCommandList),
        "Find commands of all sessions by status, repository or session, newest first.",
        SESSIONS_READ,
    ),
    _row(
        "get_command",
        "commands.get",
        "GET /commands/{command_id}",
        (commands.CommandRef, commands.CommandReply),
        "Get a command.",
        SESSIONS_READ,
    ),
    _row(
        "wait_command",
        "commands.wait",
        "GET /commands/{command_id}/wait",
        (commands.WaitCommand, commands.CommandReply),
        "Wait until a command has ended or the timeout is over.",
        SESSIONS_READ,
    ),
    _row(
        "cancel_command",
        "commands.cancel",
        "POST /commands/{command_id}/cancel",
        (commands.CommandRef, commands.CommandReply),
        "Cancel a command; an ended one is returned unchanged.",
        COMMANDS_WRITE,
    ),
    _row(
        "rerun_command",
        "runs.rerun",
        "POST /commands/{command_id}/rerun 201",
        (commands.RerunCommand, commands.RunReply),
        "Run an earlier command again, in a new session at the same commit and patch.",
        *_RUN,
        keyed=True,
    ),
    _row(
        "signal_command",
        "commands.signal",
        "POST /commands/{command_id}/signal",
        (commands.SignalCommand, base.Message),
        "Send a signal to a command's first process.",
        COMMANDS_WRITE,
        keyed=True,
    ),
    _row(
        "write_stdin",
        "commands.write_stdin",
        "POST /commands/{command_id}/stdin",
        (commands.WriteStdin, base.Message),
        "Write to a command's stdin.",
        COMMANDS_WRITE,  # not keyed: the write id makes a repetition harmless
    ),
    _row(
        "read_log",
        "logs.read",
        "GET /commands/{command_id}/log",
        (logs.ReadLog, logs.LogPage),
        "Read a log from an offset.",
        *_READ_LOGS,
    ),
    _row(
        "read_log_text",
        "logs.text",
        "GET /commands/{command_id}/log/text",
        (logs.ReadLogText, logs.LogText),
        "Read a log as text: from an offset, the last lines, or the lines that match a pattern.",
        *_READ_LOGS,
    ),
    _row(
        "digest_log",
        "logs.digest",
        "GET /commands/{command_id}/log/digest",
        (digest.DigestLog, digest.Digest),
        "Summarize a log: first error, failing tests, tracebacks, repeats, first and last lines.",
        *_READ_LOGS,
    ),
    _row(
        "follow_log",
        "logs.follow",
        "GET /commands/{command_id}/log.ndjson",
        (logs.FollowLog, logs.LogPiece),
        "Follow a log from an offset until the command has ended.",
        *_READ_LOGS,
        stream=True,
    ),
    _row(
        "read_events",
        "events.read",
        "GET /events",
        (logs.ReadEvents, logs.EventList),
        "Read the events after a cursor.",
        SESSIONS_READ,
    ),
    _row(
        "follow_events",
        "events.follow",
        "GET /events/stream",
        (logs.ReadEvents, logs.EventReply),
        "Follow the events after a cursor.",
        SESSIONS_READ,
        stream=True,
    ),
    _row(
        "list_leases",
        "leases.page",
        "GET /leases",
        (base.ListRequest, operators.LeaseList),
        "List the workspaces and their leases.",
        ADMIN,
    ),
    _row(
        "list_workers",
        "workers.page",
        "GET /workers",
        (base.PageRequest, operators.WorkerList),
        "List the supervised workers.",
        ADMIN,
    ),
    _row(
        "restart_worker",
        "workers.restart",
        "POST /workers/{worker}/restart",
        (operators.WorkerRef, operators.WorkerList),
        "Replace a worker's process, or start one.",
        ADMIN,
        keyed=True,
    ),
    _row(
        "reset_worker",
        "workers.reset",
        "POST /workers/{worker}/reset",
        (operators.WorkerRef, operators.WorkerList),
        "Clear a worker's failures; a worker that gave up starts again.",
        ADMIN,
    ),
    _row(
        "stop_worker",
        "workers.stop",
        "POST /workers/{worker}/stop",
        (operators.WorkerRef, operators.WorkerList),
        "Drain a worker and stop it.",
        ADMIN,
    ),
    _row(
        "create_token",
        "tokens.create",
        "POST /auth/tokens 201",
        (operators.CreateToken, operators.TokenReply),
        "Create a token; its secret is shown only once.",
        ADMIN,
        keyed=True,
    ),
    _row(
        "list_tokens",
        "tokens.page",
        "GET /auth/tokens",
        (base.ListRequest, operators.TokenList),
        "List the tokens, without their secrets.",
        ADMIN,
    ),
    _row(
        "revoke_token",
        "tokens.revoke",
        "DELETE /auth/tokens/{token_id}",
        (operators.TokenRef, base.Message),
        "Revoke a token.",
        ADMIN,
    ),
    _row(
        "who_am_i",
        "tokens.who_am_i",
        "GET /whoami",
        (base.EmptyRequest, operators.WhoAmI),
        "Get the caller's token id, name and scopes.",
    ),
    ServiceOperation(
        name="health",
        verb="health.check",
        route=Route.of("GET /readyz"),
        request=base.EmptyRequest,
        reply=operators.Health,
        scopes=None,
        idempotent=True,
        summary="Check the store, the disk, the keepers and the parts of the server.",
    ),
)

OPERATIONS = {row.name: row for row in _ROWS}

# Routes that return an operation's result in another format: name -> (operation, route).
_VARIANTS = {
    "session_patch": ("diff_session", OPERATIONS["diff_session"].route),  # as bytes, if the Accept header says so
    "artifact_file": ("get_artifact", Route.of("GET /sessions/{session_id}/artifacts/{artifact_id}")),
    "log_events": ("follow_log", Route.of("GET /commands/{command_id}/log/events")),
    "exec_in_session": ("exec_command", Route.of("POST /sessions/{session_id}/exec")),
    "session_logs": ("follow_log", Route.of("GET /sessions/{session_id}/logs")),
}
VARIANTS = {form: OPERATIONS[operation] for form, (operation, _) in _VARIANTS.items()}
ROUTES = {row.name: row.route for row in _ROWS} | {form: route for form, (_, route) in _VARIANTS.items()}
