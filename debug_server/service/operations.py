"""The table of operations: name, messages, scopes, and whether a repeated call changes anything.

A surface renders this table; a test walks it against every surface.
"""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.service import messages as m
from debug_server.service.caller import ADMIN, ARTIFACTS_READ, COMMANDS_WRITE, SESSIONS_READ, SESSIONS_WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One verb of the service."""

    name: str
    verb: str = ""  # its method: a member of Service and a name; none for an operation of another part
    request: type[m.Request]
    reply: type[m.Reply]
    scopes: tuple[str, ...] | None  # None: nobody needs to be known
    idempotent: bool  # may be repeated without harm; others take an idempotency key
    stream: bool = False  # yields many replies
    sentence: str


def _read(
    name: str, verb: str, request: type[m.Request], reply: type[m.Reply], sentence: str, *scopes: str
) -> Operation:
    return Operation(
        name=name,
        verb=verb,
        request=request,
        reply=reply,
        scopes=scopes or (SESSIONS_READ,),
        idempotent=True,
        sentence=sentence,
    )


def _write(
    name: str, verb: str, request: type[m.Request], reply: type[m.Reply], sentence: str, *scopes: str
) -> Operation:
    return Operation(
        name=name,
        verb=verb,
        request=request,
        reply=reply,
        scopes=scopes or (SESSIONS_WRITE,),
        idempotent=False,
        sentence=sentence,
    )


_ALL = [
    _write(
        "register_repository",
        "repositories.register",
        m.RegisterRepository,
        m.RepositoryReply,
        "Register a git remote.",
        ADMIN,
    ),
    _read("get_repository", "repositories.get", m.RepositoryName, m.RepositoryReply, "One repository by name."),
    _read("list_repositories", "repositories.page", m.Page, m.RepositoryList, "The repositories, by pages."),
    _write(
        "open_session", "sessions.open", m.OpenSession, m.SessionReply, "Lease a workspace of a commit and a patch."
    ),
    _read("get_session", "sessions.get", m.SessionId, m.SessionReply, "One session."),
    _read(
        "list_sessions",
        "sessions.page",
        m.Page,
        m.SessionList,
        "The caller's sessions; an admin's list has everybody's.",
    ),
    _write("fork_session", "sessions.fork", m.ForkSession, m.SessionList, "New sessions from the current state."),
    _write("reset_session", "sessions.reset", m.SessionId, m.SessionReply, "Back to commit and patch."),
    _read("diff_session", "sessions.diff", m.SessionId, m.SessionDiff, "What was changed, as a patch."),
    Operation(
        name="close_session",
        verb="sessions.close",
        request=m.SessionId,
        reply=m.Message,
        scopes=(SESSIONS_WRITE,),
        idempotent=True,
        sentence="Cancel what runs and give the workspace back.",
    ),
    _write(
        "submit_command",
        "commands.submit",
        m.SubmitCommand,
        m.CommandReply,
        "Queue a command in a session.",
        COMMANDS_WRITE,
        SESSIONS_WRITE,
    ),
    _read("get_command", "commands.get", m.CommandId, m.CommandReply, "One command."),
    _read("list_commands", "commands.page", m.SessionPage, m.CommandList, "A session's commands by sequence."),
    _read(
        "wait_command",
        "commands.wait",
        m.WaitCommand,
        m.CommandReply,
        "The command once it has ended, or as it is at the deadline.",
    ),
    Operation(
        name="cancel_command",
        verb="commands.cancel",
        request=m.CommandId,
        reply=m.CommandReply,
        scopes=(COMMANDS_WRITE,),
        idempotent=True,
        sentence="End a command; an ended one is returned unchanged.",
    ),
    _write("signal_command", "commands.signal", m.SignalCommand, m.Message, "Send a signal.", COMMANDS_WRITE),
    Operation(
        name="write_stdin",
        verb="commands.write_stdin",
        request=m.WriteStdin,
        reply=m.Message,
        scopes=(COMMANDS_WRITE,),
        idempotent=True,  # by its write id
        sentence="Write to a command's stdin.",
    ),
    _write(
        "start_run",
        "runs.start",
        m.StartRun,
        m.RunReply,
        "Open, run and close in one request.",
        COMMANDS_WRITE,
        SESSIONS_WRITE,
    ),
    _read(
        "read_log", "logs.read", m.ReadLog, m.LogPage, "Bytes of a log from an offset.", SESSIONS_READ, ARTIFACTS_READ
    ),
    Operation(
        name="follow_log",
        verb="logs.follow",
        request=m.FollowLog,
        reply=m.LogPiece,
        scopes=(SESSIONS_READ, ARTIFACTS_READ),
        idempotent=True,
        stream=True,
        sentence="A log from an offset: history, then live, until the command has ended.",
    ),
    _read(
        "list_artifacts",
        "artifacts.page",
        m.SessionPage,
        m.ArtifactList,
        "A session's artifacts.",
        SESSIONS_READ,
        ARTIFACTS_READ,
    ),
    _read(
        "get_artifact", "artifacts.get", m.ArtifactId, m.ArtifactReply, "One artifact.", SESSIONS_READ, ARTIFACTS_READ
    ),
    _read("read_events", "events.read", m.ReadEvents, m.EventList, "Events after a cursor."),
    Operation(
        name="follow_events",
        verb="events.follow",
        request=m.ReadEvents,
        reply=m.EventReply,
        scopes=(SESSIONS_READ,),
        idempotent=True,
        stream=True,
        sentence="Events after a cursor, then live.",
    ),
    _read("list_leases", "leases.page", m.Page, m.LeaseList, "The workspaces and who holds each.", ADMIN),
    _read("list_workers", "workers.page", m.Page, m.WorkerList, "Supervised long-lived processes.", ADMIN),
    _write(
        "restart_worker",
        "workers.restart",
        m.WorkerChoice,
        m.WorkerList,
        "Replace a worker's process, or start one.",
        ADMIN,
    ),
    Operation(
        name="reset_worker",
        verb="workers.reset",
        request=m.WorkerChoice,
        reply=m.WorkerList,
        scopes=(ADMIN,),
        idempotent=True,
        sentence="Forget a worker's failures; one that gave up starts again.",
    ),
    Operation(
        name="stop_worker",
        verb="workers.stop",
        request=m.WorkerChoice,
        reply=m.WorkerList,
        scopes=(ADMIN,),
        idempotent=True,
        sentence="Drain a worker and keep it down.",
    ),
    _write(
        "create_token", "tokens.create", m.CreateToken, m.TokenReply, "A new token; its secret is shown once.", ADMIN
    ),
    _read("list_tokens", "tokens.page", m.Page, m.TokenList, "The tokens, without secrets.", ADMIN),
    Operation(
        name="revoke_token",
        verb="tokens.revoke",
        request=m.TokenId,
        reply=m.Message,
        scopes=(ADMIN,),
        idempotent=True,
        sentence="End a token's life.",
    ),
    Operation(
        name="who_am_i",
        verb="tokens.who_am_i",
        request=m.Nothing,
        reply=m.WhoAmI,
        scopes=(),
        idempotent=True,
        sentence="The caller as the server sees it.",
    ),
    _write("debug_session", "sessions.debug", m.DebugAction, m.Message, "Speak to a session's debugger."),
    Operation(
        name="health",
        verb="health.check",
        request=m.Nothing,
        reply=m.Health,
        scopes=None,
        idempotent=True,
        sentence="Whether store, disk, keepers and the server's parts work, checked now.",
    ),
]

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _ALL}
