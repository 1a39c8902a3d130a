"""Waits for a command, with progress, and digests its log for a model."""

from __future__ import annotations

import time

from debug_server import messages as m
from debug_server.surfaces.mcp.calls import Call

_PROGRESS_SECONDS = 1.0
_NEWEST_BYTES = 1024


async def watch(call: Call, command_id: int, seconds: float) -> m.CommandReply:
    """Wait for a command, at most ``seconds``, and tell the progress each second; ends with the caller's token."""
    async with call.service.followers.while_valid(call.caller):
        return await _watch(call, command_id, seconds)


async def _watch(call: Call, command_id: int, seconds: float) -> m.CommandReply:
    began = time.monotonic()
    await call.progress(0.0, f"command {command_id} is running")
    while True:
        left = max(0.001, began + seconds - time.monotonic())
        waiting = m.WaitCommand(command_id=command_id, timeout=min(_PROGRESS_SECONDS, left))
        command = await call.service.commands.wait(call.caller, waiting)
        elapsed = time.monotonic() - began
        if command.ended or elapsed >= seconds or call.service.draining:
            return command
        newest = f": {await _newest_line(call, command_id)}" if call.may_read_logs() else ""
        await call.progress(elapsed, f"command {command_id}: {elapsed:.0f} s, {command.log_bytes} bytes{newest}")


async def _newest_line(call: Call, command_id: int) -> str:
    request = m.ReadLogText(command_id=command_id, tail=1, limit=_NEWEST_BYTES)
    return (await call.service.logs.text(call.caller, request)).text.strip()


async def digest(call: Call, command_id: int, max_tokens: int) -> m.Digest | None:
    """The digest of a log; None without the right to read it."""
    if not call.may_read_logs():
        return None
    return await call.service.logs.digest(call.caller, m.DigestLog(command_id=command_id, max_tokens=max_tokens))
