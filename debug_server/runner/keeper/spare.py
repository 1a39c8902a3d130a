"""A keeper between commands: waiting, with everything done that needs no orders."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

from debug_server.runner.keeper import frames
from debug_server.runner.keeper.containment import Containment
from debug_server.runner.keeper.embryo import Stdio
from debug_server.runner.keeper.keeper import Keeper
from debug_server.runner.keeper.linux import become_subreaper, set_process_name, start_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_COMMANDS_PER_KEEPER = 200


class Spare:
    """What a keeper carries from one command to the next, and what it has ready for the next one.

    A keeper serves one command at a time and several after each other: its pages are warm by then, which a fresh fork's
    are not (0.8 ms of page faults a command here).
    """

    def __init__(self, connection: socket.socket, containment: Containment, boot: str) -> None:
        os.setsid()
        become_subreaper()
        set_process_name("ds-keeper")
        self.connection = connection
        self._containment = containment
        self._buffer = frames.FrameBuffer()
        own = os.getpid()
        self.identity = {"pid": own, "start_time": start_time(own), "boot_id": boot}
        self.wakeup, wakeup_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)

    def prepare(self) -> None:
        """Make pipes and a tree for the next command."""
        os.chdir("/")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.stdio = Stdio()
        self.nest = self._containment.prepare(self.stdio)

    def await_orders(self) -> dict[str, Any] | None:
        """Block until the server has a command; None when it went away."""
        while received := _receive(self.connection, self._buffer):
            for kind, payload in received:
                message: dict[str, Any] = json.loads(payload) if kind == frames.JSON else {}
                if "run_dir" in message:
                    return message
                if "forget" in message:
                    _remove(message["forget"])
        return None


def _receive(connection: socket.socket, buffer: frames.FrameBuffer) -> list[tuple[int, bytes]] | None:
    try:
        connection.setblocking(True)
        return frames.receive(connection, buffer)
    except OSError:  # closed while the last command ran
        return None


def _remove(run_dir: str) -> None:
    """The last command's directory: the server has its end in the store."""
    try:
        for name in os.listdir(run_dir):
            os.unlink(os.path.join(run_dir, name))
        os.rmdir(run_dir)
    except OSError:  # somebody else has removed it, or recovery will
        pass


def live(connection: socket.socket, containment: Containment, boot: str) -> NoReturn:
    """Serve commands on ``connection`` until the server goes away, then exit."""
    spare = Spare(connection, containment, boot)
    for left in reversed(range(_COMMANDS_PER_KEEPER)):
        spare.prepare()
        orders = spare.await_orders()
        if orders is None:
            spare.nest.abandon()
            break
        try:
            os.chdir(orders["run_dir"])
            Keeper(spare, orders, last=left == 0).run()
        except BaseException:  # noqa: BLE001 - the process boundary: nothing above could end the tree
            _report_crash(orders["run_dir"])
            spare.nest.abandon()
            break
    os._exit(0)


def _report_crash(run_dir: str) -> None:
    """Keep the traceback of a bug of ours for whoever mends it."""
    import traceback

    try:
        with open(os.path.join(run_dir, "keeper.err"), "w") as file:
            traceback.print_exception(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1], file=file)
    except OSError:
        pass
