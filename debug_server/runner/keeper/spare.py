"""An idle keeper: waits for the next command, with everything prepared that needs no orders."""

from __future__ import annotations

import json
import os
import signal
import socket

from debug_server.runner.keeper import frames
from debug_server.runner.keeper.containment import Containment
from debug_server.runner.keeper.linux import become_subreaper, set_process_name, start_time
from debug_server.runner.keeper.prefork import Stdio
from debug_server.runner.keeper.rundir import RunDir
from debug_server.runner.keeper.slot import Slot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_of_this_process: list[Spare] = []  # one in a keeper, none in the fork server


def install_handlers() -> None:
    """Install the signal handlers, in the fork server: a call in each keeper would cost it 0.16 MB of its own."""
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(*_: object) -> None:
    if not _of_this_process:
        os._exit(128 + signal.SIGTERM)
    _of_this_process[0].on_sigterm()


class Spare:
    """The state of a keeper between commands, and what is prepared for the next one.

    A keeper serves several commands, one after the other: a new fork costs 0.8 ms of page faults for each command.
    """

    def __init__(self, connection: socket.socket, containment: Containment, boot: str) -> None:
        os.setsid()
        become_subreaper()
        set_process_name("ds-keeper")
        self.connection = connection
        self._containment = containment
        self.namespaces = containment.namespaces
        self._last: Slot | None = None
        self.slot: Slot  # for the next command, after ``prepare``
        self._buffer = frames.FrameBuffer()
        own = os.getpid()
        self.fork_server = os.getppid(), start_time(os.getppid())
        self.identity = {"pid": own, "start_time": start_time(own), "boot_id": boot}
        self.run_dir = RunDir(own, start_time(own))
        self.wakeup, wakeup_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        self._idle = False
        self.asked_to_end = False
        _of_this_process.append(self)

    def on_sigterm(self) -> None:
        """Note the request: the handler may run during a write to the log. The wakeup descriptor wakes the loop."""
        self.asked_to_end = True
        if self._idle:
            self._idle = False  # once: a second signal must not interrupt the end
            raise InterruptedError

    def prepare(self) -> OSError | None:
        """Create pipes and a slot for the next command; returns the error if that fails now, else None."""
        last = self._last
        try:
            self.stdio = Stdio()
            self.slot = self._last = self._containment.prepare(self.stdio) if last is None or last.spent else last
        except OSError as error:  # out of processes or descriptors: tried again when the command comes
            return error
        return None

    def await_orders(self) -> dict[str, Any] | None:
        """Wait for a command; None when the server has disconnected, or after SIGTERM."""
        while received := self._receive():
            for kind, payload in received:
                message: dict[str, Any] = json.loads(payload) if kind == frames.JSON else {}
                if "run_dir" in message:
                    return message
                if "forget" in message:
                    self.run_dir.give_back(message["forget"])
        return None

    def wanted(self, owner: str | None) -> bool:
        """Whether the server that sent the orders still wants the command to start.

        A server that gives up disconnects before it removes its fence. For a dead server, recovery removes the file
        ``owner`` before it checks for the handle.
        """
        try:
            connected = bool(self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:  # connected, without data
            connected = True
        except OSError:
            connected = False
        return connected and (owner is None or os.path.exists(owner))

    def leave(self) -> None:
        """Remove what was prepared and not used."""
        if self._last is not None and not self._last.spent:
            self._last.abandon()
        self.run_dir.remove_unless_in_use()

    def give_up(self, message: str, number: int | None = None) -> None:
        """End the processes of the slot, and tell the server that the command was not started."""
        self.slot.abandon()
        self.refuse(message, number)

    def refuse(self, message: str, number: int | None = None) -> None:
        """Tell the server that its command was not started; ``number`` is the errno of an OSError."""
        try:
            self.connection.sendall(frames.encode_json({"event": "refused", "message": message, "errno": number}))
        except OSError:
            pass

    def _receive(self) -> list[tuple[int, bytes]] | None:
        try:
            return self._wait_and_receive()
        except InterruptedError:  # SIGTERM just as the wait ended
            return None

    def _wait_and_receive(self) -> list[tuple[int, bytes]] | None:
        try:
            self._idle = True  # from here on SIGTERM ends the wait
            if self.asked_to_end:
                return None
            if self._containment.mounts is not None:
                self._containment.mounts.wait(self.connection.fileno())
            return frames.receive(self.connection, self._buffer)
        except OSError:  # closed while the last command ran, or SIGTERM
            return None
        finally:
            self._idle = False
