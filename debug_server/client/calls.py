"""Builds the request of each operation as a value: operation, fields and type of the reply."""

from __future__ import annotations

import base64
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from debug_server import messages as r
from debug_server.errors import InvalidInputError
from debug_server.messages.execs import DEFAULT_WAIT
from debug_server.messages.tasks import RunnerTask, TaskList
from debug_server.model import Limits, check_argv, check_list

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Words = Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T_co]):
    """One request, independent of the client that sends it."""

    operation: str
    reply: type[T_co]
    fields: Mapping[str, Any]
    timeout: float = 0.0  # seconds that the server may wait, added to the client's timeout
    key: str | None = None  # idempotency key, for requests that are repeated on purpose; None: a new one


def _call(operation: str, reply: type[T], /, timeout: float = 0.0, **fields: Any) -> Call[T]:
    """Leave out fields that are None or empty: the server's defaults apply."""
    given = {
        name: _plain(name, value) for name, value in fields.items() if value is not None and value not in ({}, [], ())
    }
    return Call(operation=operation, reply=reply, fields=given, timeout=timeout)


def _plain(name: str, value: object) -> object:
    """The value of a field as JSON carries it; InvalidInputError names a part that it cannot carry."""
    match value:
        case None | str() | int():
            return value
        case float():
            if not math.isfinite(value):
                raise InvalidInputError(f"{name}: must be a finite number, not {value}", field=name)
            return value
        case os.PathLike():
            return os.fsdecode(value)
        case Mapping():
            return {str(key): _plain(f"{name}.{key}", item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(f"{name}.{number}", item) for number, item in enumerate(value)]
    raise InvalidInputError(f"{name}: cannot be sent: {type(value).__name__} is none of JSON's types", field=name)


def register_repository(
    name: str,
    remote_url: str | os.PathLike[str],
    *,
    default_branch: str | None = None,
    description: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Call[r.RepositoryReply]:
    """Register a git remote by URL or by a path on the server's machine."""
    return _call(
        "register_repository",
        r.RepositoryReply,
        name=name,
        remote_url=remote_url,
        default_branch=default_branch,
        description=description,
        settings=settings,
    )


def get_repository(name: str) -> Call[r.RepositoryReply]:
    """Get a repository by name."""
    return _call("get_repository", r.RepositoryReply, name=name)


def list_repositories(*, after: int = 0, limit: int | None = None, order: str | None = None) -> Call[r.RepositoryList]:
    """List the repositories, a page at a time."""
    return _call("list_repositories", r.RepositoryList, after=after or None, limit=limit, order=order)


def remove_repository(name: str) -> Call[r.Message]:
    """Remove a repository without open sessions, its mirror and its workspaces."""
    return _call("remove_repository", r.Message, name=name, timeout=60.0)


def _one_commit(commit_sha: str | None, commit: str | None) -> str | None:
    """The commit of a request, which may have either name."""
    if commit is not None and commit_sha is not None:
        raise InvalidInputError("commit is another name for commit_sha: give one of them")
    return commit if commit_sha is None else commit_sha


def _patch(patch: str | bytes | None) -> dict[str, Any]:
    """The patch of a request: bytes that are not UTF-8 travel as base64."""
    if isinstance(patch, os.PathLike):
        raise InvalidInputError(f"patch {patch!r} is a path: give its text, such as path.read_text()", field="patch")
    data = patch.encode(errors="surrogateescape") if isinstance(patch, str) else patch
    try:
        return {"patch": None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {"patch_base64": base64.b64encode(data or b"").decode()}


def open_session(
    repository: str,
    commit_sha: str | None = None,
    *,
    patch: str | bytes | None = None,
    metadata: Mapping[str, Any] | None = None,
    requested_by: str | None = None,
    expires_in: float | None = None,
    manifests: Words = (),
    python: str | None = None,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    commands: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    commit: str | None = None,
) -> Call[r.SessionReply]:
    """Lease a workspace of a commit and a patch; ``commands`` are lines for the server's shell.

    ``env`` and ``cwd`` are for these commands. ``commit`` is another name for ``commit_sha``.
    """
    return _call(
        "open_session",
        r.SessionReply,
        repository=repository,
        commit_sha=_one_commit(commit_sha, commit),
        **_patch(patch),
        metadata=metadata,
        requested_by=requested_by,
        expires_in=expires_in,
        manifests=check_list(manifests, what="manifests"),
        python=python,
        extras=check_list(extras, what="extras"),
        groups=check_list(groups, what="groups"),
        commands=check_list(commands, what="commands"),
        env=env,
        cwd=cwd,
    )


def get_session(session_id: int) -> Call[r.SessionReply]:
    """Get a session."""
    return _call("get_session", r.SessionReply, session_id=session_id)


def list_sessions(
    *,
    status: Sequence[str] = (),
    repository: str | None = None,
    after: int = 0,
    limit: int | None = None,
    order: str | None = None,
) -> Call[r.SessionList]:
    """List the caller's sessions, a page at a time; an admin sees all sessions. Statuses include open and closed."""
    return _call(
        "list_sessions",
        r.SessionList,
        status=check_list(status, what="status"),
        repository=repository,
        after=after or None,
        limit=limit,
        order=order,
    )


def fork_session(session_id: int, *, count: int = 1) -> Call[r.SessionList]:
    """Open copies of a session in its current state."""
    return _call("fork_session", r.SessionList, session_id=session_id, count=count)


def reset_session(session_id: int) -> Call[r.SessionReply]:
    """Reset the workspace to its commit and patch."""
    return _call("reset_session", r.SessionReply, session_id=session_id)


def diff_session(session_id: int) -> Call[r.SessionDiff]:
    """Get the changes in the workspace as a patch."""
    return _call("diff_session", r.SessionDiff, session_id=session_id)


def close_session(session_id: int) -> Call[r.Message]:
    """Close a session: cancel its commands and release its workspace."""
    return _call("close_session", r.Message, session_id=session_id, timeout=30.0)


def _command(
    argv: Words,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    log_name: str | None = None,
    limits: Limits | Mapping[str, float] | None = None,
    require: Sequence[str] = (),
    isolation: str | None = None,
    network: str | None = None,
    secrets: Sequence[str] = (),
    artifacts: Words = (),
    tty: bool = False,
    stdin: bool = False,
    priority: int = 0,
) -> dict[str, Any]:
    return {
        "argv": check_argv(argv),
        "cwd": cwd,
        "env": env,
        "log_name": log_name,
        "limits": limits.requested() if isinstance(limits, Limits) else limits,
        "require": check_list(require, what="require"),
        "isolation": isolation,
        "network": network,
        "secrets": check_list(secrets, what="secrets"),
        "artifacts": check_list(artifacts, what="artifacts"),
        "tty": tty or None,
        "stdin": stdin or None,
        "priority": priority or None,
    }


def submit_command(
    session_id: int,
    argv: Words,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    log_name: str | None = None,
    limits: Limits | Mapping[str, float] | None = None,
    require: Sequence[str] = (),
    isolation: str | None = None,
    network: str | None = None,
    secrets: Sequence[str] = (),
    artifacts: Words = (),
    tty: bool = False,
    stdin: bool = False,
    priority: int = 0,
) -> Call[r.CommandReply]:
    """Queue a command in a session."""
    command = _command(
        argv,
        cwd=cwd,
        env=env,
        log_name=log_name,
        limits=limits,
        require=require,
        isolation=isolation,
        network=network,
        secrets=secrets,
        artifacts=artifacts,
        tty=tty,
        stdin=stdin,
        priority=priority,
    )
    return _call("submit_command", r.CommandReply, session_id=session_id, **command)


def start_run(
    repository: str,
    commit_sha: str,
    argv: Words,
    *,
    patch: str | bytes | None = None,
    metadata: Mapping[str, Any] | None = None,
    manifests: Words = (),
    python: str | None = None,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    limits: Limits | Mapping[str, float] | None = None,
    require: Sequence[str] = (),
    isolation: str | None = None,
    network: str | None = None,
    secrets: Sequence[str] = (),
    artifacts: Words = (),
    tty: bool = False,
    stdin: bool = False,
) -> Call[r.RunReply]:
    """Open a session, run a command and close the session; returns when the command is queued."""
    command = _command(
        argv,
        cwd=cwd,
        env=env,
        limits=limits,
        require=require,
        isolation=isolation,
        network=network,
        secrets=secrets,
        artifacts=artifacts,
        tty=tty,
        stdin=stdin,
    )
    return _call(
        "start_run",
        r.RunReply,
        repository=repository,
        commit_sha=commit_sha,
        **_patch(patch),
        metadata=metadata,
        manifests=check_list(manifests, what="manifests"),
        python=python,
        extras=check_list(extras, what="extras"),
        groups=check_list(groups, what="groups"),
        **command,
    )


def exec_command(
    argv: Words,
    *,
    session_id: int | None = None,
    repository: str | None = None,
    commit_sha: str | None = None,
    patch: str | bytes | None = None,
    metadata: Mapping[str, Any] | None = None,
    manifests: Words = (),
    python: str | None = None,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    log_name: str | None = None,
    limits: Limits | Mapping[str, float] | None = None,
    require: Sequence[str] = (),
    isolation: str | None = None,
    network: str | None = None,
    secrets: Sequence[str] = (),
    artifacts: Words = (),
    tty: bool = False,
    stdin: bool = False,
    priority: int = 0,
    timeout: float | None = None,
    wait: float = DEFAULT_WAIT,
    on_disconnect: str | None = None,
    output_bytes: int | None = None,
    merged: bool = False,
    digest: bool = False,
    key: str | None = None,
    commit: str | None = None,
) -> Call[r.ExecReply]:
    """Run a command, wait at most ``wait`` seconds for its end, and return its output.

    It runs in a session, in a new workspace of a repository, or without either in a new empty folder. Repeat the call
    with the same ``key`` to wait for the same command again. ``commit`` is another name for ``commit_sha``.
    """
    command = _command(
        argv,
        cwd=cwd,
        env=env,
        log_name=log_name,
        limits=limits,
        require=require,
        isolation=isolation,
        network=network,
        secrets=secrets,
        artifacts=artifacts,
        tty=tty,
        stdin=stdin,
        priority=priority,
    )
    call = _call(
        "exec_command",
        r.ExecReply,
        session_id=session_id,
        repository=repository,
        commit_sha=_one_commit(commit_sha, commit),
        **_patch(patch),
        metadata=metadata,
        manifests=check_list(manifests, what="manifests"),
        python=python,
        extras=check_list(extras, what="extras"),
        groups=check_list(groups, what="groups"),
        **command,
        wait=wait,
        on_disconnect=on_disconnect,
        output_bytes=output_bytes,
        merged=merged or None,
        digest=digest or None,
    )
    limit = {} if timeout is None else {"timeout": _plain("timeout", timeout)}
    return replace(call, fields={**call.fields, **limit}, timeout=wait, key=key)


def get_command(command_id: int) -> Call[r.CommandReply]:
    """Get a command."""
    return _call("get_command", r.CommandReply, command_id=command_id)


def list_commands(
    session_id: int, *, after: int = 0, limit: int | None = None, order: str | None = None
) -> Call[r.CommandList]:
    """List a session's commands in order, a page at a time."""
    return _call("list_commands", r.CommandList, session_id=session_id, after=after or None, limit=limit, order=order)


def find_commands(
    *,
    status: Sequence[str] = (),
    repository: str | None = None,
    session_id: int | None = None,
    after: int = 0,
    limit: int | None = None,
    order: str | None = None,
) -> Call[r.FoundCommandList]:
    """Find commands of all sessions, newest first, a page at a time; the statuses include active and ended."""
    return _call(
        "find_commands",
        r.FoundCommandList,
        status=check_list(status, what="status"),
        repository=repository,
        session_id=session_id,
        after=after or None,
        limit=limit,
        order=order,
    )


def rerun_command(command_id: int, *, env: Mapping[str, str] | None = None) -> Call[r.RunReply]:
    """Run an earlier command again in a new session; ``env`` has the values of its variables, which are not kept."""
    return _call("rerun_command", r.RunReply, command_id=command_id, env=env)


def wait_command(command_id: int, *, seconds: float = 30.0) -> Call[r.CommandReply]:
    """Wait until a command has ended, at most ``seconds``."""
    return Call(
        operation="wait_command",
        reply=r.CommandReply,
        fields={"command_id": command_id, "timeout": _plain("seconds", seconds)},
        timeout=seconds,
    )


def cancel_command(command_id: int) -> Call[r.CommandReply]:
    """Cancel a command; an ended one is returned unchanged."""
    return _call("cancel_command", r.CommandReply, command_id=command_id, timeout=10.0)


def signal_command(command_id: int, signal: int | str) -> Call[r.Message]:
    """Send a signal to a command's first process, by number or by name (``TERM`` or ``SIGTERM``)."""
    return _call("signal_command", r.Message, command_id=command_id, signal=signal)


def write_stdin(
    command_id: int, data: bytes | str = b"", *, close: bool = False, write_id: str | None = None
) -> Call[r.Message]:
    """Write to a command's stdin; a repeated ``write_id`` is applied once."""
    written = data.encode() if isinstance(data, str) else data
    return _call(
        "write_stdin",
        r.Message,
        command_id=command_id,
        write_id=write_id or secrets.token_hex(8),
        data=base64.b64encode(written).decode(),
        encoding="base64",
        close=close,
    )


def read_log_text(
    command_id: int,
    *,
    offset: int = 0,
    tail: int | None = None,
    grep: str | None = None,
    ignore_case: bool = False,
    context: int = 0,
    max_matches: int | None = None,
    limit: int | None = None,
    encoding: str | None = None,
) -> Call[r.LogText]:
    """Read a log as text: from ``offset``, the last ``tail`` lines, or the lines that match ``grep`` (RE2 syntax)."""
    return _call(
        "read_log_text",
        r.LogText,
        timeout=10.0,
        command_id=command_id,
        offset=offset or None,
        tail=tail,
        grep=grep,
        ignore_case=ignore_case or None,
        context=context or None,
        max_matches=max_matches,
        limit=limit,
        encoding=encoding,
    )


def digest_log(command_id: int, *, max_tokens: int | None = None) -> Call[r.Digest]:
    """Summarize a log in at most ``max_tokens``: first error, failing tests, tracebacks, first and last lines."""
    return _call("digest_log", r.Digest, timeout=10.0, command_id=command_id, max_tokens=max_tokens)


def list_artifacts(
    session_id: int, *, after: int = 0, limit: int | None = None, order: str | None = None
) -> Call[r.ArtifactList]:
    """List a session's artifacts, a page at a time."""
    return _call("list_artifacts", r.ArtifactList, session_id=session_id, after=after or None, limit=limit, order=order)


def get_artifact(session_id: int, artifact_id: int) -> Call[r.ArtifactReply]:
    """Get an artifact's metadata; ``download_artifact`` downloads it."""
    return _call("get_artifact", r.ArtifactReply, session_id=session_id, artifact_id=artifact_id)


def artifact_file(session_id: int, artifact_id: int) -> Call[bytes]:
    """Get an artifact's bytes."""
    return _call("artifact_file", bytes, session_id=session_id, artifact_id=artifact_id)


def session_patch(session_id: int) -> Call[bytes]:
    """Get the changes in a session as the exact bytes of a patch."""
    return _call("session_patch", bytes, session_id=session_id)


def read_events(
    *,
    after: int = 0,
    limit: int | None = None,
    session_id: int | None = None,
    command_id: int | None = None,
    kind: str | None = None,
) -> Call[r.EventList]:
    """Read a page of the events after a cursor."""
    return _call(
        "read_events",
        r.EventList,
        after=after,
        limit=limit,
        session_id=session_id,
        command_id=command_id,
        kind=kind,
    )


def list_leases(*, after: int = 0, limit: int | None = None, order: str | None = None) -> Call[r.LeaseList]:
    """List the workspaces and their leases, a page at a time."""
    return _call("list_leases", r.LeaseList, after=after or None, limit=limit, order=order)


def list_workers(*, after: int = 0, limit: int | None = None) -> Call[r.WorkerList]:
    """List the supervised workers, a page at a time."""
    return _call("list_workers", r.WorkerList, after=after or None, limit=limit)


def restart_worker(worker: str, *, instance: int | None = None) -> Call[r.WorkerList]:
    """Replace a worker's process, or start one that is down."""
    return _call("restart_worker", r.WorkerList, worker=worker, instance=instance)


def reset_worker(worker: str, *, instance: int | None = None) -> Call[r.WorkerList]:
    """Clear a worker's failures; a worker that gave up starts again."""
    return _call("reset_worker", r.WorkerList, worker=worker, instance=instance)


def stop_worker(worker: str, *, instance: int | None = None) -> Call[r.WorkerList]:
    """Drain a worker and stop it."""
    return _call("stop_worker", r.WorkerList, worker=worker, instance=instance)


def create_token(
    name: str,
    *,
    scopes: Sequence[str] = (),
    expires_in: float | None = None,
    quotas: Mapping[str, Any] | None = None,
) -> Call[r.TokenReply]:
    """Create a token; its secret is shown only once."""
    return _call(
        "create_token",
        r.TokenReply,
        name=name,
        scopes=check_list(scopes, what="scopes"),
        expires_in=expires_in,
        quotas=quotas,
    )


def list_tokens(*, after: int = 0, limit: int | None = None, order: str | None = None) -> Call[r.TokenList]:
    """List the tokens, without their secrets, a page at a time."""
    return _call("list_tokens", r.TokenList, after=after or None, limit=limit, order=order)


def revoke_token(token_id: int) -> Call[r.Message]:
    """Revoke a token."""
    return _call("revoke_token", r.Message, token_id=token_id)


def who_am_i() -> Call[r.WhoAmI]:
    """Get the caller's token id, name and scopes."""
    return _call("who_am_i", r.WhoAmI)


def debug_session(
    session_id: int, *, action: str | None = None, payload: Mapping[str, Any] | None = None
) -> Call[r.Message]:
    """Send an action to a session's debugger."""
    return _call("debug_session", r.Message, session_id=session_id, action=action, payload=payload)


def health() -> Call[r.Health]:
    """Check the store, the disk, the keepers and the parts of the server."""
    return _call("health", r.Health)


def submit_task(
    task_id: str,
    prompt: str,
    *,
    run_id: str = "sdk",
    execution_mode: str | None = None,
    workspace: Mapping[str, Any] | None = None,
    sandbox: Mapping[str, Any] | None = None,
    timeout_seconds: float | None = None,
    status_callback_url: str | None = None,
    status_callback_token: str | None = None,
    handoff_context: Sequence[Any] = (),
    role_name: str | None = None,
    workspace_path: str | None = None,
) -> Call[RunnerTask]:
    """Queue a host task under an id of yours; ``run_id`` is the id of the run that it belongs to."""
    return _call(
        "submit_task",
        RunnerTask,
        task_id=task_id,
        run_id=run_id,
        prompt=prompt,
        execution_mode=execution_mode,
        workspace=workspace,
        sandbox=sandbox,
        timeout_seconds=timeout_seconds,
        status_callback_url=status_callback_url,
        status_callback_token=status_callback_token,
        handoff_context=list(handoff_context),
        role_name=role_name,
        workspace_path=workspace_path,
    )


def list_tasks(
    *, after: int = 0, limit: int | None = None, status: str | None = None, order: str | None = None
) -> Call[TaskList]:
    """List the caller's tasks, a page at a time."""
    return _call("list_tasks", TaskList, after=after or None, limit=limit, status=status, order=order)


def get_task(task_id: str) -> Call[RunnerTask]:
    """Get a task."""
    return _call("get_task", RunnerTask, task_id=task_id)


def wait_task(task_id: str, *, seconds: float = 30.0) -> Call[RunnerTask]:
    """Wait until a task has ended, at most ``seconds``."""
    fields = {"task_id": task_id, "timeout": _plain("seconds", seconds)}
    return Call(operation="wait_task", reply=RunnerTask, fields=fields, timeout=seconds)


def cancel_task(task_id: str) -> Call[RunnerTask]:
    """Cancel a task; returns when its processes have ended. An ended task is returned unchanged."""
    return _call("cancel_task", RunnerTask, task_id=task_id, timeout=60.0)
