"""The requests that a keeper answers."""

from __future__ import annotations

import fcntl
import struct
import termios
from collections.abc import Callable

from debug_server.runner.keeper import frames
from debug_server.runner.keeper.control import Client
from debug_server.runner.keeper.linux import resident_bytes
from debug_server.runner.keeper.tree import signal_member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from debug_server.runner.keeper.keeper import Keeper

Reply = dict[str, "Any"]


def answer(keeper: Keeper, client: Client, message: dict[str, Any]) -> Reply:
    """Execute one request."""
    verb = _VERBS.get(message["op"])
    if verb is None:
        return _refused(f"unknown verb {message['op']!r}")
    reply: Reply = verb(keeper, client, message)
    return reply


def write_stdin(keeper: Keeper, client: Client, write_id: str, data: bytes) -> None:
    """Write a frame of input to the child."""
    if keeper.stdin is None:
        keeper.control.answer(client, {"ok": False, "write": write_id, "error": "the command has no stdin"})
    else:
        keeper.stdin.write(client, write_id, data)


def resize(terminal: int, rows: int, cols: int) -> None:
    """Set a terminal's window size; the kernel tells its programs."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, cols, 0, 0))


def _refused(why: str) -> Reply:
    return {"ok": False, "error": why}


def _status(keeper: Keeper, _: Client, __: dict[str, Any]) -> Reply:
    return {"ok": True, "handle": keeper.handle, "ending": keeper.stop is not None}


def _usage(keeper: Keeper, _: Client, __: dict[str, Any]) -> Reply:
    return {"ok": True, "memory_bytes": sum(map(resident_bytes, keeper.tree.pids()))}


def _cancel(keeper: Keeper, _: Client, message: dict[str, Any]) -> Reply:
    if message.get("grace") is not None:
        keeper.ladder.grace = float(message["grace"])
    keeper.cancel(str(message.get("message") or "cancelled on request"))
    return {"ok": True}


def _signal(keeper: Keeper, _: Client, message: dict[str, Any]) -> Reply:
    number, everyone = int(message["signal"]), bool(message.get("all"))
    if not everyone and keeper.leader_ended is not None:
        return _refused("the command has ended")
    for pid in keeper.tree.pids() if everyone else [keeper.leader()]:
        try:
            signal_member(keeper.tree, pid, number)
        except ProcessLookupError:
            if not everyone:  # others may end meanwhile
                return _refused("the command has ended")
        except OSError as error:
            return _refused(f"signal {number}: {error.strerror}")
    return {"ok": True}


def _close_stdin(keeper: Keeper, _: Client, __: dict[str, Any]) -> Reply:
    if keeper.stdin is not None:
        keeper.stdin.close()
    return {"ok": True}


def _resize(keeper: Keeper, _: Client, message: dict[str, Any]) -> Reply:
    if keeper.streams.terminal is None:
        return _refused("the command has no terminal")
    resize(keeper.streams.terminal, int(message["rows"]), int(message["cols"]))
    return {"ok": True}


def _attach(keeper: Keeper, client: Client, message: dict[str, Any]) -> Reply:
    if keeper.relay is None:
        return _refused("this keeper does not relay: stdout is in the log")
    # A new supervisor does not know the offset of its predecessor.
    offset = keeper.relay.acknowledged if message.get("offset") is None else int(message["offset"])
    keeper.relay.acknowledge(offset)
    client.attached = True
    for start, data in keeper.relay.since(offset):
        keeper.control.send_bytes(client, frames.encode_output(start, data))
    keeper.streams.pace_relay()
    return {"ok": True, "pid": keeper.leader()}


def _acknowledge(keeper: Keeper, _: Client, message: dict[str, Any]) -> Reply:
    if keeper.relay is not None:
        keeper.relay.acknowledge(int(message["offset"]))
        keeper.streams.pace_relay()
    return {"ok": True}


_VERBS: dict[str, Callable[[Any, Client, dict[str, Any]], Any]] = {
    "status": _status,
    "usage": _usage,
    "cancel": _cancel,
    "signal": _signal,
    "close_stdin": _close_stdin,
    "resize": _resize,
    "attach": _attach,
    "ack": _acknowledge,
}
