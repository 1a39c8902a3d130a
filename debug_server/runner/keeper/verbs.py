"""The requests that a keeper answers."""

from __future__ import annotations

import fcntl
import struct
import termios
from collections.abc import Callable

from debug_server.runner.keeper import frames
from debug_server.runner.keeper.command import Command
from debug_server.runner.keeper.control import Client
from debug_server.runner.keeper.linux import resident_bytes
from debug_server.runner.keeper.tree import signal_member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Reply = dict[str, "Any"]


def answer(command: Command, client: Client, message: dict[str, Any]) -> Reply:
    """Execute one request."""
    verb = _VERBS.get(message["op"])
    if verb is None:
        return _refused(f"unknown verb {message['op']!r}")
    return verb(command, client, message)


def write_stdin(command: Command, client: Client, write_id: str, data: bytes) -> None:
    """Write a frame of input to the child."""
    if command.stdin is None:
        command.control.answer(client, {"ok": False, "write": write_id, "error": "the command has no stdin"})
    else:
        command.stdin.write(client, write_id, data)


def resize(terminal: int, rows: int, cols: int) -> None:
    """Set a terminal's window size; the kernel tells its programs."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, cols, 0, 0))


def _refused(why: str) -> Reply:
    return {"ok": False, "error": why}


def _status(command: Command, _: Client, __: dict[str, Any]) -> Reply:
    return {"ok": True, "handle": command.handle, "ending": command.stop is not None}


def _usage(command: Command, _: Client, __: dict[str, Any]) -> Reply:
    return {"ok": True, "memory_bytes": sum(map(resident_bytes, command.tree.pids()))}


def _cancel(command: Command, _: Client, message: dict[str, Any]) -> Reply:
    if message.get("grace") is not None:
        command.ladder.grace = float(message["grace"])
    command.cancel(str(message.get("message") or "cancelled on request"))
    return {"ok": True}


def _signal(command: Command, _: Client, message: dict[str, Any]) -> Reply:
    number, everyone = int(message["signal"]), bool(message.get("all"))
    if not everyone and command.leader_ended is not None:
        return _refused("the command has ended")
    if command.is_starting:
        command.early_signals.append(number)
        return {"ok": True}
    for pid in command.tree.pids() if everyone else [command.leader()]:
        try:
            signal_member(command.tree, pid, number)
        except ProcessLookupError:
            if not everyone:  # others may end meanwhile
                return _refused("the command has ended")
        except OSError as error:
            return _refused(f"signal {number}: {error.strerror}")
    return {"ok": True}


def _close_stdin(command: Command, _: Client, __: dict[str, Any]) -> Reply:
    if command.stdin is not None:
        command.stdin.close()
    return {"ok": True}


def _resize(command: Command, _: Client, message: dict[str, Any]) -> Reply:
    if command.streams.terminal is None:
        return _refused("the command has no terminal")
    resize(command.streams.terminal, int(message["rows"]), int(message["cols"]))
    return {"ok": True}


def _attach(command: Command, client: Client, message: dict[str, Any]) -> Reply:
    if command.relay is None:
        return _refused("this keeper does not relay: stdout is in the log")
    # A new supervisor does not know the offset of its predecessor.
    offset = command.relay.acknowledged if message.get("offset") is None else int(message["offset"])
    command.relay.acknowledge(offset)
    client.attached = True
    for start, data in command.relay.since(offset):
        command.control.send_bytes(client, frames.encode_output(start, data))
    command.streams.report_logged()
    command.streams.pace_relay()
    return {"ok": True, "pid": command.leader()}


def _acknowledge(command: Command, _: Client, message: dict[str, Any]) -> Reply:
    if command.relay is not None:
        command.relay.acknowledge(int(message["offset"]))
        command.streams.pace_relay()
    return {"ok": True}


_VERBS: dict[str, Callable[[Command, Client, dict[str, Any]], Reply]] = {
    "status": _status,
    "usage": _usage,
    "cancel": _cancel,
    "signal": _signal,
    "close_stdin": _close_stdin,
    "resize": _resize,
    "attach": _attach,
    "ack": _acknowledge,
}
