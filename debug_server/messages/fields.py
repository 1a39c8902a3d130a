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
        "cancel_requested": "Whether it was asked to end.",
        "close": "Close stdin after the data.",
        "code": "Names the kind of error; it does not change.",
        "command": "Program and arguments.",
        "RunReply.command": "The command of the run.",
        "RunnerSandbox.command": ("Program and arguments in the container.", ["python3", "-c", "print(6 * 7)"]),
        "command_id": ("The command's id.", 1),
        "commands": ("Command lines for the server's shell, queued at once.", ["make test"]),
        "commit_sha": ("A commit, branch or tag; `commit` is another name of this field.", "HEAD"),
        "container_id": "The container, once it exists.",
        "content_type": "The MIME type.",
        "count": ("The number of copies.", 2),
        "created_at": "When it was created.",
        "cwd": ("Working directory, below the workspace; the default is its top.", "src"),
        "data": "What happened, in detail.",
        "LogPiece.data": "The bytes.",
        "WriteStdin.data": ("What to write.", "yes\n"),
        "default_branch": ("The branch that is meant where none is named; by default the remote's.", "main"),
        "description": ("A note for people.", "the web shop"),
        "directory": "The directory of the server's machine in which it runs, for a run without a repository.",
        "encoding": ("How bytes travel: as text, or as base64, which is exact.", "base64"),
        "ended": "Whether it has reached its terminal state; false in the answer to a wait whose time was over.",
        "LogPage.ended": "Whether the log ends at `next_offset` and the command has ended.",
        "env": ("Environment variables, in addition to those of the environment.", {"CI": "1"}),
        "error": "The error.",
        "exact": "False where the patch has bytes that are not UTF-8: get it as `text/x-patch` then.",
        "execution_mode": ("Where the task runs.", "no-workspace"),
        "executor": "What runs the task: mock, shell, codex or docker.",
        "exit": "The exit record: reason, signal, times, memory, and the evidence of the reason.",
        "exit_code": "The exit status; null while it runs and where the program did not end by itself.",
        "exit_reason": "Why it ended, such as exited, nonzero_exit, timed_out or cancelled.",
        "expires_at": "When it expires; null: never.",
        "expires_in": ("Seconds until it expires.", 3600),
        "extras": ("Extras of the project to install.", ["test"]),
        "field": "The first wrong field.",
        "finished_at": "When it ended.",
        "follow": ("Wait for more until the end.", True),
        "git_branch": ("The worktree's branch.", "task/42"),
        "groups": ("Dependency groups of the project to install.", ["dev"]),
        "handoff_context": "What earlier tasks left for this one; stored, not interpreted.",
        "id": "Its id.",
        "image": ("The container's image.", "python:3.12-slim"),
        "instance": ("One instance of the worker; all, if it is left out.", 0),
        "items": "The items of this page.",
        "kind": ("The kind of event.", "command.finished"),
        "ArtifactReply.kind": "log, coverage, junit, core-dump or custom.",
        "last_used_at": "When it was last used.",
        "limit": ("The largest number of items.", 100),
        "ReadLog.limit": ("About how many bytes to read.", 65536),
        "limits": ("Limits of the whole process tree.", {"wall_seconds": 600}),
        "lock_paths": ("Paths that no other task may use at the same time.", ["/srv/project"]),
        "log_bytes": "The length of its log.",
        "log_name": ("The name of its log file.", "pytest"),
        "log_url": "The path of the whole log.",
        "manifests": ("Files in the repository that list dependencies.", ["requirements.txt"]),
        "message": "A sentence for a person.",
        "metadata": ("Yours: stored and returned unchanged.", {"ticket": "42"}),
        "mounts": "Directories of the host in the container.",
        "name": ("Its name.", "project"),
        "next_after": "The cursor of the next page; null on the last one.",
        "next_offset": "The offset of the next read.",
        "offset": ("The byte of the log to start at.", 0),
        "LogPiece.offset": "The offset of its first byte.",
        "ok": "Whether all is well.",
        "order": ("The first item: the oldest or the newest.", "newest"),
        "owner": "Who holds the lease.",
        "patch": "A patch in the format of `git diff`.",
        "patch_artifact_id": "The artifact with uncommitted changes of its worktree.",
        "patch_hash": "The SHA-256 of the patch.",
        "path": "Where it is on the server's machine.",
        "payload": "Arguments of the action.",
        "pieces": "What was read.",
        "priority": ("Higher runs first.", 0),
        "project_id": ("The project's id, which is yours.", 1),
        "project_root": ("The project's directory.", "/srv/project"),
        "prompt": ("What the task is to do.", "Fix the failing test."),
        "python": ("The version of Python, or an interpreter.", "3.12"),
        "quotas": ("Limits on sessions, commands and requests_per_second.", {"sessions": 4}),
        "read_only": "Whether the container may only read it.",
        "reason": "What is wrong with it, with the value unless that may be secret.",
        "remote_url": ("A git URL, or a path on the server's machine.", "https://example.org/project.git"),
        "repository": ("The name of a registered repository.", "project"),
        "repository_id": "The repository's id.",
        "requested_by": ("For whom it is opened; for people.", "alice"),
        "require": ("Limits or layers without which the command must not start.", ["memory"]),
        "retryable": "Whether the same request may succeed later.",
        "revoked_at": "When it was revoked.",
        "role_name": ("The role that the task plays; stored, not interpreted.", "reviewer"),
        "run_id": ("The run that the task belongs to.", "run-1"),
        "sandbox": "The container, for docker-sandbox.",
        "scopes": ("What the token may do.", ["sessions:read", "sessions:write"]),
        "secrets": ("Values that are replaced by *** in the log.", ["hunter2"]),
        "seq": "Its number.",
        "sequence": "Its number in the session.",
        "session": "The session of the run.",
        "session_id": ("The session's id.", 1),
        "settings": "Yours: stored and returned unchanged.",
        "sha256": "The SHA-256 of its bytes.",
        "signal": ("A signal, by name or number.", "TERM"),
        "size": "Its length in bytes.",
        "source": ("The host's directory.", "/srv/data"),
        "started_at": "When it started.",
        "status": ("Its state.", "running"),
        "FindCommands.status": ("Only these states; active is pending or running, ended is any other.", ["active"]),
        "ListSessions.status": ("Only these states; open is pending or running, closed is any other.", ["open"]),
        "CommandReply.status": "pending, running, succeeded, failed or cancelled.",
        "LeaseReply.status": "idle, reserved or busy.",
        "SessionReply.status": "pending, running, completed, failed or cancelled.",
        "RunnerTask.status": "queued, running, success, failed or canceled.",
        "TaskPage.status": ("Only tasks in this state.", "running"),
        "status_callback_token": "Sent with each callback, as X-Runner-Token.",
        "status_callback_url": ("Where to POST each change of the task's status.", "http://127.0.0.1:8080/status"),
        "stderr": "The end of its stderr.",
        "stderr_bytes": "The length of its stderr; null while that is long and growing.",
        "stderr_truncated": "Whether `stderr` is only the end.",
        "stdin": "Whether the command reads what is written to it; otherwise its stdin is empty.",
        "stdout": "The end of its stdout.",
        "stdout_bytes": "The length of its stdout; null while that is long and growing.",
        "stdout_truncated": "Whether `stdout` is only the end.",
        "stream": "stdout, stderr or system.",
        "subject": "What the event is about, where it is neither a session nor a command.",
        "target": ("Where the container sees it.", "/data"),
        "task_id": ("The task's id, which is yours.", "task-42"),
        "timeout": ("The longest wait, in seconds.", 30),
        "timeout_seconds": ("The task's time limit.", 600),
        "timestamp": "When it was written.",
        "token": "The secret; shown only once.",
        "token_id": ("The token's id.", 1),
        "tty": "Whether the command gets a terminal.",
        "updated_at": "When it last changed.",
        "violations": "Every wrong field.",
        "waits_for": "The ids of the commands that must end first.",
        "wait": ("Answer when the command has ended, or after so many seconds.", 60),
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
