"""Replies as short texts; the ids and offsets that the next call needs come first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from debug_server import messages as m
from debug_server.surfaces.mcp.messages import ArtifactPart, CommandDigest, RunAnswer, SessionLogs

_SHOWN_ITEMS = 50
_SHOWN_CHARACTERS = 1 << 15


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
    commit = (reply.commit_sha or "")[:12]
    patch = " with a patch" if reply.patch_hash else ""
    return f"session {reply.id}: {reply.status}, commit {commit}{patch}"


@text_of.register
def _command(reply: m.CommandReply) -> str:
    argv = " ".join(reply.command)
    how = f", exit code {reply.exit_code}" if reply.exit_code is not None else ""
    why = f" ({reply.exit_reason})" if reply.exit_reason else ""
    words = argv if len(argv) <= 200 else argv[:199] + "…"
    state = f"{reply.status}{how}{why}, {reply.log_bytes} bytes of log"
    return f"command {reply.id} of session {reply.session_id}: {state}: {words}"


@text_of.register
def _artifact(reply: m.ArtifactReply) -> str:
    size = "gone" if reply.size is None else f"{reply.size} bytes"
    return f"artifact {reply.id} of session {reply.session_id}: {reply.name} ({size}, {reply.kind})"


@text_of.register
def _event(reply: m.EventReply) -> str:
    about = f" session {reply.session_id}" if reply.session_id else ""
    about += f" command {reply.command_id}" if reply.command_id else ""
    return f"{reply.seq}: {reply.kind}{about}"


@text_of.register(m.RepositoryList)
@text_of.register(m.SessionList)
@text_of.register(m.CommandList)
@text_of.register(m.ArtifactList)
@text_of.register(m.EventList)
def _list(reply: m.RepositoryList | m.SessionList | m.CommandList | m.ArtifactList | m.EventList) -> str:
    items: Sequence[m.Reply] = reply.items
    lines = [text_of(item) for item in items[:_SHOWN_ITEMS]]
    if len(items) > _SHOWN_ITEMS:
        lines.append(f"… and {len(items) - _SHOWN_ITEMS} more in the structured content")
    next_after = getattr(reply, "next_after", None)
    if next_after is not None and items:
        lines.append(f"next page: after={next_after}")
    return "\n".join(lines) or "none"


@text_of.register
def _diff(reply: m.SessionDiff) -> str:
    if len(reply.patch) > _SHOWN_CHARACTERS:
        return f"{reply.patch[:_SHOWN_CHARACTERS]}\n… the structured content has all {len(reply.patch)} characters"
    return reply.patch or f"session {reply.session_id} has no changes"


@text_of.register
def _log(reply: m.LogText) -> str:
    span = f"[bytes {reply.offset}-{reply.next_offset} of {reply.log_bytes}"
    span += "; the command has ended, end of log]" if reply.ended else f"; continue with offset={reply.next_offset}]"
    if reply.skipped_bytes:
        span += f"\n[{reply.skipped_bytes} bytes before them did not fit: raise limit, or read from their offset]"
    if not reply.exact:
        span += "\n[bytes that are no UTF-8 were replaced: encoding=base64 has them]"
    body = "\n".join(map(_match, reply.matches)) if reply.matches else reply.text
    return f"{body}\n{span}" if body else span


def _match(item: m.LogMatch) -> str:
    lines = [*(f"  {line}" for line in item.before), f"@{item.offset} {item.text}"]
    return "\n".join([*lines, *(f"  {line}" for line in item.after)])


@text_of.register
def _part(reply: ArtifactPart) -> str:
    data = reply.data if reply.encoding == "utf-8" else f"({len(reply.data)} characters of base64, see `data`)"
    more = f"\n[continue with offset={reply.next_offset}]" if reply.next_offset is not None else ""
    return data + more


@text_of.register
def _digested(reply: CommandDigest) -> str:
    head = text_of(reply.command)
    if reply.command.finished_at is None:
        head += f"\nIt has not ended: call wait_command with command_id={reply.command.id}, or cancel_command."
    if reply.digest is None:
        return head + "\nThe log is not shown: the token lacks sessions:read or artifacts:read."
    return head + "\n" + reply.digest.as_text()


@text_of.register
def _run(reply: RunAnswer) -> str:
    return "\n".join([_digested(reply), *(text_of(item) for item in reply.artifacts[:_SHOWN_ITEMS])])


@text_of.register
def _session_logs(reply: SessionLogs) -> str:
    return "\n\n".join(text_of(item) for item in reply.items) or "the session has run no command yet"
