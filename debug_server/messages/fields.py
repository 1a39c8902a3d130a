"""What each field means, by its name, with an example: for references, and for the answers to wrong values.

A name means the same in every message; where it cannot, the row's name has the message in front. A description in the
message itself comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from debug_server.model.limits import LIMITS, parse_size


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDoc:
    """The meaning of one field."""

    about: str
    example: Any = None  # None: no example helps


def _rows(table: Mapping[str, str | tuple[str, Any]]) -> dict[str, FieldDoc]:
    return {
        name: FieldDoc(about=row) if isinstance(row, str) else FieldDoc(about=row[0], example=row[1])
        for name, row in table.items()
    }


_FIELDS = _rows(
    {
        "action": ("What the debugger is to do.", "open"),
        "after": ("Cursor: continue after the `next_after` of the page before.", 100),
        "argv": ('Program and arguments; for a line of shell, `["sh", "-c", LINE]`.', ["pytest", "-q"]),
        "artifact_id": ("The artifact's id.", 1),
        "artifacts": ("Patterns of files in the workspace to keep when the command has ended.", ["junit*.xml"]),
        "before": "The lines before it.",
        "LeftOut.bytes": "How many bytes the answer leaves out.",
        "cancel_requested": "Whether it was asked to end.",
        "close": "Close stdin after the data.",
        "code": "Names the kind of error; it does not change.",
        "RunReply.command": "The command of the run.",
        "RunnerSandbox.command": ("Program and arguments in the container.", ["python3", "-c", "print(6 * 7)"]),
        "command": "Program and arguments.",
        "command_id": ("The command's id.", 1),
        "commands": ("Command lines for the server's shell, queued at once.", ["make test"]),
        "commit_sha": ("A commit, branch or tag; `commit` is another name of this field.", "HEAD"),
        "container_id": "The container, once it exists.",
        "content_type": "The MIME type.",
        "count": ("The number of copies.", 2),
        "ExecReply.cpu_seconds": "The CPU time of the whole tree.",
        "created_at": "When it was created.",
        "cursor": "Continue after the event with this id.",
        "cwd": ("Working directory, below the workspace; the default is its top.", "src"),
        "LogPiece.data": "The bytes.",
        "OutputPiece.data": "The bytes.",
        "WriteStdin.data": ("What to write.", "yes\n"),
        "data": "What happened, in detail.",
        "default_branch": ("The branch that is meant where none is named; by default the remote's.", "main"),
        "description": ("A note for people.", "the web shop"),
        "digest": "The digest of the whole log, if it was requested.",
        "directory": "The directory of the server's machine in which it runs, for a run without a repository.",
        "encoding": ("How bytes travel: as text, or as base64, which is exact.", "base64"),
        "end": "The offset after its last byte.",
        "ExecReply.ended": "False where the request's wait was over first: the command continues.",
        "LogPage.ended": "Whether the log ends at `next_offset` and the command has ended.",
        "ended": "Whether it has reached its terminal state; false in the answer to a wait whose time was over.",
        "env": ("Environment variables, in addition to those of the environment.", {"CI": "1"}),
        "error": "The error.",
        "event_type": ("What happened, such as created, wip or closed.", "created"),
        "exact": "False where the patch has bytes that are not UTF-8: use `patch_base64`, or get it as `text/x-patch`.",
        "execution_mode": ("Where the task runs.", "no-workspace"),
        "executor": "What runs the task: mock, shell, codex or docker.",
        "exit": "The exit record: reason, signal, times, memory, and the evidence of the reason.",
        "exit_code": "The exit status; null while it runs and where the program did not end by itself.",
        "exit_reason": "Why it ended, such as exited, nonzero_exit, timed_out or cancelled.",
        "expires_at": "When it expires; null: never.",
        "expires_in": ("Seconds until it expires.", 3600),
        "extras": ("Extras of the project to install.", ["test"]),
        "failing": "The failed tests, or how many of them are left out.",
        "failing_count": "How many tests failed, counted up to a limit.",
        "EmitEvent.field": ("What changed on the card.", "status"),
        "field": "The first wrong field.",
        "finished_at": "When it ended.",
        "first_error": "The first line that reports an error.",
        "StreamQuery.follow": ("Wait for new events.", False),
        "follow": ("Wait for more until the end.", True),
        "framework": "What ran the test.",
        "from_now": ("Leave out what happened before.", True),
        "git_branch": ("The worktree's branch.", "task/42"),
        "groups": ("Dependency groups of the project to install.", ["dev"]),
        "handoff_context": "What earlier tasks left for this one; stored, not interpreted.",
        "head": "The first lines.",
        "id": "Its id.",
        "image": ("The container's image.", "python:3.12-slim"),
        "instance": ("One instance of the worker; all, if it is left out.", 0),
        "items": "The items of this page.",
        "ArtifactReply.kind": "log, coverage, junit, core-dump or custom.",
        "kind": ("The kind of event.", "command.finished"),
        "last": "The last line of the run, where it differs from the first.",
        "last_used_at": "When it was last used.",
        "left_out": "What the answer leaves out, with the ranges of the log that have it.",
        "ReadLog.limit": ("About how many bytes to read.", 65536),
        "limit": ("The largest number of items.", 100),
        "limits": ("Limits of the whole process tree.", {"wall_seconds": 600}),
        "lines": "How many lines it has.",
        "lock_paths": ("Paths that no other task may use at the same time.", ["/srv/project"]),
        "log_bytes": "The length of its log.",
        "log_name": ("The name of its log file.", "pytest"),
        "log_url": "The path of the whole log.",
        "manifests": ("Files in the repository that list dependencies.", ["requirements.txt"]),
        "matches": "The lines that match.",
        "ExecReply.merged": "The output in the order in which it was written, where it was requested.",
        "merged": ("Return the output also in the order in which it was written.", True),
        "Emitted.message": "One line for each runner.",
        "ExecReply.message": "Why it ended, where it did not exit by itself.",
        "message": "A sentence for a person.",
        "metadata": ("Yours: stored and returned unchanged.", {"ticket": "42"}),
        "mounts": "Directories of the host in the container.",
        "name": ("Its name.", "project"),
        "next_after": "The cursor of the next page; null on the last one.",
        "next_offset": "The offset of the next read.",
        "LogPiece.offset": "The offset of its first byte.",
        "offset": ("The byte of the log to start at.", 0),
        "ok": "Whether all is well.",
        "omitted": "What is left out.",
        "on_disconnect": ("Whether the command continues or is cancelled when the caller goes away.", "cancel"),
        "order": ("The first item: the oldest or the newest.", "newest"),
        "ExecCommand.output_bytes": ("How many of the first and of the last bytes of each stream to return.", 65536),
        "owner": "Who holds the lease.",
        "patch": "A patch in the format of `git diff`.",
        "patch_base64": "The exact patch, where it has bytes that are not UTF-8.",
        "patch_artifact_id": "The artifact with uncommitted changes of its worktree.",
        "patch_hash": "The SHA-256 of the patch.",
        "path": "Where it is on the server's machine.",
        "paths": ("The paths that a push changed.", ["README.md"]),
        "EmitEvent.payload": ("Anything that the runner needs, as text.", "{}"),
        "payload": "Arguments of the action.",
        "pieces": "What was read.",
        "priority": ("Higher runs first.", 0),
        "project_id": ("The project's id, which is yours.", 1),
        "project_root": ("The project's directory.", "/srv/project"),
        "prompt": ("What the task is to do.", "Fix the failing test."),
        "python": ("The version of Python, or an interpreter.", "3.12"),
        "queued_seconds": "How long it waited to start.",
        "quotas": ("Limits on sessions, commands and requests_per_second.", {"sessions": 4}),
        "read_only": "Whether the container may only read it.",
        "reason": "What is wrong with it, with the value unless that may be secret.",
        "remote_url": ("A git URL, or a path on the server's machine.", "https://example.org/project.git"),
        "repeats": "Lines that were repeated.",
        "HookRef.repo": ("The repository's name in config/repos.yml.", "kanban-pmo"),
        "repo": ("Only events of this repository.", "kanban-pmo"),
        "repo_name": ("The repository's name in config/repos.yml.", "kanban-pmo"),
        "repository": ("The name of a registered repository.", "project"),
        "repository_id": "The repository's id.",
        "requested_by": ("For whom it is opened; for people.", "alice"),
        "isolation": ("How the command is confined; left out: the server's default.", "namespace"),
        "network": ("What the command can reach; left out: the server's default.", "none"),
        "require": ("Limits or layers without which the command must not start.", ["memory"]),
        "retryable": "Whether the same request may succeed later.",
        "revoked_at": "When it was revoked.",
        "role_name": ("The role that the task plays; stored, not interpreted.", "reviewer"),
        "run_id": ("The run that the task belongs to.", "run-1"),
        "runners": "The runners that the event started.",
        "sandbox": "The container, for docker-sandbox.",
        "scopes": ("What the token may do.", ["sessions:read", "sessions:write"]),
        "secrets": ("Names of variables in `env` whose values are replaced by *** in the log.", ["API_TOKEN"]),
        "seq": "Its number.",
        "sequence": "Its number in the session.",
        "session": "The session of the run.",
        "session_id": ("The session's id.", 1),
        "settings": "Yours: stored and returned unchanged.",
        "sha256": "The SHA-256 of its bytes.",
        "signal": ("A signal, by name or number.", "TERM"),
        "size": "Its length in bytes.",
        "skipped_bytes": "How many bytes were not read.",
        "source": ("The host's directory.", "/srv/data"),
        "start": "The offset of its first byte.",
        "started_at": "When it started.",
        "CommandReply.status": "pending, running, succeeded, failed or cancelled.",
        "FindCommands.status": ("Only these states; active is pending or running, ended is any other.", ["active"]),
        "LeaseReply.status": "idle, reserved or busy.",
        "ListSessions.status": ("Only these states; open is pending or running, closed is any other.", ["open"]),
        "RunnerTask.status": "queued, running, success, failed or canceled.",
        "SessionReply.status": "pending, running, completed, failed or cancelled.",
        "TaskPage.status": ("Only tasks in this state.", "running"),
        "status": ("Its state.", "running"),
        "status_callback_token": "Sent with each callback, as X-Runner-Token.",
        "status_callback_url": ("Where to POST each change of the task's status.", "http://127.0.0.1:8080/status"),
        "ExecReply.stderr": "All of stderr, or its first bytes.",
        "stderr": "The end of its stderr.",
        "ExecReply.stderr_bytes": "The full length of stderr.",
        "stderr_bytes": "The length of its stderr; null while that is long and growing.",
        "stderr_encoding": "Whether stderr is text or base64.",
        "stderr_tail": "The last bytes of stderr, where its middle is left out.",
        "stderr_truncated": "Whether `stderr` is only the end.",
        "stdin": "Whether the command reads what is written to it; otherwise its stdin is empty.",
        "ExecReply.stdout": "All of stdout, or its first bytes.",
        "stdout": "The end of its stdout.",
        "ExecReply.stdout_bytes": "The full length of stdout.",
        "stdout_bytes": "The length of its stdout; null while that is long and growing.",
        "stdout_encoding": "Whether stdout is text or base64.",
        "stdout_tail": "The last bytes of stdout, where its middle is left out.",
        "stdout_truncated": "Whether `stdout` is only the end.",
        "stream": "stdout, stderr or system.",
        "subject": "What the event is about, where it is neither a session nor a command.",
        "tail": "The last lines.",
        "target": ("Where the container sees it.", "/data"),
        "task": ("Only events of this card or task.", "TASK-01"),
        "EmitEvent.task_id": ("The card or task that the event is about.", "TASK-01"),
        "task_id": ("The task's id, which is yours.", "task-42"),
        "text": "The text.",
        "ExecCommand.timeout": ("The command's time limit, in seconds.", 60),
        "timeout": ("The longest wait, in seconds.", 30),
        "timeout_seconds": ("The task's time limit.", 600),
        "EmitEvent.timestamp": ("When it happened; by default now.", "2026-01-31T12:00:00Z"),
        "timestamp": "When it was written.",
        "token": "The secret; shown only once.",
        "token_id": ("The token's id.", 1),
        "tracebacks": "The tracebacks.",
        "tty": "Whether the command gets a terminal.",
        "type": ("Only events of this type.", "created"),
        "updated_at": "When it last changed.",
        "violations": "Every wrong field.",
        "ExecCommand.wait": ("Answer after so many seconds although the command still runs.", 50),
        "wait": ("Answer when the command has ended, or after so many seconds.", 60),
        "waits_for": "The ids of the commands that must end first.",
        "ExecReply.wall_seconds": "How long it ran.",
        "where": "Where it was raised.",
        "workdir": ("The working directory in the container.", "/workspace/project"),
        "worker": ("The worker's name.", "codex"),
        "workspace": "The project that the task works on.",
        "workspace_path": ("The workspace's path; stored, not interpreted.", "/srv/project"),
        "worktree_cleanup_attempted": "Whether its worktree was to be removed.",
        "worktree_cleanup_message": "Why it was not.",
        "worktree_cleanup_succeeded": "Whether it was.",
        "worktree_id": "The workspace's id.",
        "worktree_path": ("Where the task's worktree is made.", "/srv/worktrees/task-42"),
        "write_id": ("Yours: a repeated write with the same id is applied once.", "1"),
    }
)


@cache
def field_docs() -> Mapping[str, FieldDoc]:
    """Every row, with those of the limits."""
    limits = {
        limit.name: FieldDoc(
            about=limit.description, example=parse_size(limit.example) if limit.unit.is_whole else float(limit.example)
        )
        for limit in LIMITS.values()
    }
    return {**_FIELDS, **limits}


def doc_of(message: str, field: str) -> FieldDoc | None:
    """The meaning of a message's field."""
    rows = field_docs()
    return rows.get(f"{message}.{field}") or rows.get(field)
