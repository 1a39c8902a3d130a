"""Replies as short texts; the ids and offsets that the next call needs come first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from debug_server import messages as m
from debug_server.service.digest import Digest, FoldedLine
from debug_server.surfaces.mcp.messages import ArtifactPart, CommandDigest, LogText, RunAnswer, SessionLogs

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
def _log(reply: LogText) -> str:
    span = f"[bytes {reply.offset}-{reply.next_offset} of {reply.log_bytes}"
    span += "; the command has ended, end of log]" if reply.ended else f"; continue with offset={reply.next_offset}]"
    lines = [f"@{item.offset} {item.text}" for item in reply.matches]
    body = "\n".join(lines) if lines else reply.text
    return f"{body}\n{span}" if body else span


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
    return head + "\n" + digest_text(reply.digest)


@text_of.register
def _run(reply: RunAnswer) -> str:
    return "\n".join([_digested(reply), *(text_of(item) for item in reply.artifacts[:_SHOWN_ITEMS])])


@text_of.register
def _session_logs(reply: SessionLogs) -> str:
    return "\n\n".join(text_of(item) for item in reply.items) or "the session has run no command yet"


def digest_text(digest: Digest) -> str:
    """A digest as text; `@` marks an offset for read_log."""
    if digest.end == digest.start:
        return "The log is empty."
    parts = [_errors(digest), _failing(digest), _tracebacks(digest)]
    if digest.text is not None:
        parts.append("log:\n" + digest.text.rstrip("\n"))
    else:
        parts += [_repeats(digest), _folded("head", digest.head), _folded("tail", digest.tail)]
        parts.append(f"({digest.lines} lines, {digest.end - digest.start} bytes; read_log has the rest by offset)")
    return "\n".join(part for part in parts if part)


def _errors(digest: Digest) -> str:
    error = digest.first_error
    return f"first error @{error.offset}: {error.text}" if error is not None else ""


def _failing(digest: Digest) -> str:
    if not digest.failing:
        return ""
    lines = [f"  @{item.offset} {item.id}" for item in digest.failing]
    return f"failing tests ({digest.failing_count}):\n" + "\n".join(lines)


def _tracebacks(digest: Digest) -> str:
    lines = [f"  @{item.offset} {item.where or '?'}: {item.text}" for item in digest.tracebacks]
    return "tracebacks:\n" + "\n".join(lines) if lines else ""


def _repeats(digest: Digest) -> str:
    return _folded("repeated lines", digest.repeats)


def _folded(title: str, items: list[FoldedLine]) -> str:
    return f"{title}:\n" + "\n".join(_line(item) for item in items) if items else ""


def _line(item: FoldedLine) -> str:
    if item.count == 1:
        return f"  @{item.offset} {item.text}"
    last = f" … {item.last}" if item.last else ""
    return f"  @{item.offset} {item.text}{last} (x{item.count})"
