"""Replies as short texts; the ids and offsets that the next call needs come first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import singledispatch

from debug_server import messages as m
from debug_server.surfaces.mcp.messages import ArtifactPart, CommandDigest, DiffPart, RunAnswer, SessionLogs

_SHOWN_WORDS = 200
_EXITED = ("exited", "nonzero_exit")  # the exit code says as much


@singledispatch
def text_of(reply: m.Reply) -> str:
    """The text of a reply; JSON for types without a function of their own."""
    return reply.model_dump_json()


@text_of.register
def _message(reply: m.Message) -> str:
    return reply.message


@text_of.register
def _repository(reply: m.RepositoryReply) -> str:
    return f"repository {reply.name} ({reply.remote_url}, default branch {reply.default_branch})"


@text_of.register
def _session(reply: m.SessionReply) -> str:
    metadata = dict(reply.metadata)
    if reply.commit_sha is not None:
        place = f"commit {reply.commit_sha[:12]}{' with a patch' if reply.patch_hash else ''}"
    elif metadata.get("scratch") is True:
        place = "in an empty folder"
        del metadata["scratch"]
    else:
        place = f"in {metadata.pop('workspace', 'a folder')}"
    if isinstance(source := metadata.get("forked_from"), int):
        place += f", a copy of session {source}"
        del metadata["forked_from"]
    if isinstance(environment := metadata.get("environment"), dict) and "manifests" in environment:
        del metadata["environment"]  # how it was asked for, which the model said itself
    more = f", metadata {json.dumps(metadata, ensure_ascii=False)}" if metadata else ""
    state = "open" if reply.is_open else f"closed ({reply.status})"
    return f"session {reply.id}: {state}, {place}{more}"


@text_of.register
def _command(reply: m.CommandReply) -> str:
    argv = " ".join(reply.command)
    words = argv if len(argv) <= _SHOWN_WORDS else argv[: _SHOWN_WORDS - 1] + "…"
    waits = f", waits for command {', '.join(map(str, reply.waits_for))}" if reply.waits_for else ""
    state = f"{reply.status}{_end(reply)}{waits}, {reply.log_bytes} bytes of log"
    return f"command {reply.id} of session {reply.session_id}: {state}: {words}"


def _end(reply: m.CommandReply) -> str:
    """How it ended, and after how long."""
    if reply.exit is None:
        return ""
    code = f", exit code {reply.exit_code}" if reply.exit_code is not None else ""
    told = reply.exit_reason in _EXITED
    why = "" if told or reply.exit_reason == reply.status else f", {reply.exit_reason}"
    message = f" ({reply.exit['message']})" if not told and reply.exit.get("message") else ""
    return f"{code}{why}{message}, {reply.exit.get('wall_seconds', 0):.1f} s"


@text_of.register
def _artifact(reply: m.ArtifactReply) -> str:
    size = "gone" if reply.size is None else f"{reply.size} bytes"
    return f"artifact {reply.id} of session {reply.session_id}: {reply.name} ({size}, {reply.kind})"


@text_of.register
def _event(reply: m.EventReply) -> str:
    about = f" session {reply.session_id}" if reply.session_id else ""
    about += f" command {reply.command_id}" if reply.command_id else ""
    about += f" {reply.subject}" if reply.subject else ""
    return f"{reply.seq}: {reply.kind}{about} {json.dumps(reply.data, ensure_ascii=False)}"


@text_of.register(m.RepositoryList)
@text_of.register(m.SessionList)
@text_of.register(m.CommandList)
@text_of.register(m.FoundCommandList)
@text_of.register(m.ArtifactList)
@text_of.register(m.EventList)
def _list(reply: m.RepositoryList | m.SessionList | m.CommandList | m.ArtifactList | m.EventList) -> str:
    items: Sequence[m.Reply] = reply.items
    lines = [text_of(item) for item in items]
    if items and reply.next_after is not None:
        lines.append(f"next page: after={reply.next_after}")
    return "\n".join(lines) or "none"


@text_of.register
def _diff(reply: DiffPart) -> str:
    more = f"\n[continue with offset={reply.next_offset}]" if reply.next_offset is not None else ""
    if not reply.exact:
        more += "\n[bytes that are no UTF-8 were replaced: debug-server session diff has them]"
    return (reply.text or f"session {reply.session_id} has no changes") + more


@text_of.register
def _log(reply: m.LogText) -> str:
    span = f"[bytes {reply.offset}-{reply.next_offset} of {reply.log_bytes}"
    span += "; the command has ended, end of log]" if reply.ended else f"; continue with offset={reply.next_offset}]"
    if reply.skipped_bytes:
        span += f"\n[{reply.skipped_bytes} bytes before them did not fit: raise limit, or read from their offset]"
    if not reply.exact:
        span += "\n[bytes that are no UTF-8 were replaced: encoding=base64 has them]"
    body = "\n".join(map(_match, reply.matches)) if reply.matches else reply.text
    if not body and reply.next_offset > reply.offset:
        body = "no line matches"
    return f"{body}\n{span}" if body else span


def _match(item: m.LogMatch) -> str:
    lines = [*(f"  {line}" for line in item.before), f"@{item.offset} {item.text}"]
    return "\n".join([*lines, *(f"  {line}" for line in item.after)])


@text_of.register
def _part(reply: ArtifactPart) -> str:
    encoding = "" if reply.encoding == "utf-8" else f"[{reply.encoding}]\n"
    more = f"\n[continue with offset={reply.next_offset}]" if reply.next_offset is not None else ""
    return encoding + reply.data + more


@text_of.register
def _digested(reply: CommandDigest) -> str:
    head = text_of(reply.command)
    if not reply.command.ended:
        head += f"\nIt has not ended: call wait_command with command_id={reply.command.id}, or cancel_command."
    if reply.digest is None:
        return head + "\nThe log is not shown: the token lacks sessions:read or artifacts:read."
    return head + "\n" + reply.digest.as_text()


@text_of.register
def _run(reply: RunAnswer) -> str:
    return "\n".join([_digested(reply), *(text_of(item) for item in reply.artifacts if item.kind != "log")])


@text_of.register
def _session_logs(reply: SessionLogs) -> str:
    return "\n\n".join(text_of(item) for item in reply.items) or "the session has run no command yet"
