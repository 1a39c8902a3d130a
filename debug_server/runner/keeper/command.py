"""What a keeper knows of its command: its parts, the facts so far, and how it is ended and reaped."""

from __future__ import annotations

import os
import select
import time

from debug_server.runner.keeper import hook, limits, processes, redaction
from debug_server.runner.keeper.classify import Stop
from debug_server.runner.keeper.containment import STATUS
from debug_server.runner.keeper.control import Control
from debug_server.runner.keeper.ladder import Ladder
from debug_server.runner.keeper.loop import Loop
from debug_server.runner.keeper.output import Output, RelayBuffer
from debug_server.runner.keeper.spare import Spare
from debug_server.runner.keeper.stdin import Stdin
from debug_server.runner.keeper.streams import Streams
from debug_server.runner.keeper.tree import children
from debug_server.runner.log_format import LogWriter
from debug_server.runner.sandbox import confine, namespaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Command:
    """One command, from its orders until its tree is empty."""

    def __init__(
        self, spare: Spare, orders: dict[str, Any], handle: dict[str, Any], loop: Loop, control: Control
    ) -> None:
        self.orders, self.handle = orders, handle
        self.limits: limits.Plan = orders["limits"]
        self.slot, self.tree, self.loop, self.control = spare.slot, spare.slot.tree, loop, control
        self.relay = RelayBuffer() if orders["relay"] else None
        self.output = Output(LogWriter(orders["log_path"]), self.asked("output_bytes"), orders["disk_reserve"])
        self.streams = Streams(loop, control, self.output, self.relay, redaction.filters(orders))
        self.streams.over_cap = self._over_cap
        self.streams.over_disk = lambda message: self.end(Stop("limit_exceeded", message, "disk"))
        self.ladder = Ladder(self.tree, orders["kill_grace"], lambda: hook.start(orders, self.tree, loop, self.output))
        self.meter = limits.Meter(self.tree)
        self.usage = limits.Usage()
        self.stdin: Stdin | None = None
        self.status: int | None = None  # the leader's wait status
        self.stop: Stop | None = None  # why its keeper ends it
        self.spawn_error: str | None = None
        self.started = 0.0
        self.leader_ended: float | None = None
        self.evidence: dict[str, Any] = {}
        if entered := _namespaces(orders, spare):
            self.evidence["namespaces"] = entered
        self.is_starting = False  # its namespaces are being made: its first process does not exist yet
        self.early_signals: list[int] = []  # to send to it as soon as it does
        self._reported: int | None = None  # the leader's wait status, from the init of its namespaces
        self._wakeup = spare.wakeup
        loop.watch(self._wakeup, self.reap)
        if self.slot.status_pipe is not None:
            loop.watch(self.slot.status_pipe, self._read_status)

    def asked(self, name: str) -> Any:
        """The value of a limit; None if it is not set."""
        return self.limits[name]["asked"] if name in self.limits else None

    def leader(self) -> int:
        """The command's first process; in a namespace it is the first one below init."""
        if self.slot.init_pipe is not None:
            below = children(self.slot.pid)
            return below[0] if below else self.slot.pid
        if self.slot.status_pipe is None:
            return self.slot.pid
        below = self.tree.pids()
        return below[0] if below else self.slot.pid

    # -- ending ---------------------------------------------------------------------------------------------------

    def end(self, stop: Stop) -> None:
        """End the tree; the first reason is kept.

        Also called after the leader has ended by itself: its remaining output may exceed the limit.
        """
        if self.stop is not None:
            return
        self.stop = stop
        self._send_ending()
        self.output.note(f"{stop.reason}: {stop.message}")
        if self.leader_ended is None:
            self.evidence["processes_at_kill"] = processes.describe(self.tree, self.orders)
            self.ladder.begin(time.monotonic(), hook=True)

    def cancel(self, message: str) -> None:
        """Cancel on request; a command that has already ended by itself is not cancelled."""
        self.reap()
        for pipe, read in ((self.slot.status_pipe, self._read_status), (self.slot.init_pipe, self.read_init)):
            if self.leader_ended is None and pipe is not None and select.select([pipe], [], [], 0)[0]:
                read(pipe, 0)
        if self.leader_ended is None and self._reported is None:
            self.end(Stop("cancelled", message))

    def _over_cap(self) -> None:
        message = f"wrote more than {self.asked('output_bytes')} bytes of output"
        self.end(Stop("limit_exceeded", message, "output_bytes"))
        self.ladder.kill_now(time.monotonic())

    def _send_ending(self) -> None:
        """Tell relay clients at once, not only when the tree is empty."""
        if self.relay is not None:
            self.control.broadcast({"event": "ending"})

    # -- reaping --------------------------------------------------------------------------------------------------

    def reap(self, *_: int) -> None:
        """Reap every process that has ended; the loop calls it with the wakeup descriptor and its events."""
        try:
            os.read(self._wakeup, 4096)
        except BlockingIOError:
            pass
        ended = None
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self.usage.add(usage)
            if pid == self.ladder.hook_pid:
                self.ladder.hook_ended(time.monotonic())
            elif pid == self.slot.pid:
                ended = status
        if ended is not None:  # only when all are reaped: a zombie would count as a leftover
            if self.slot.init_pipe is not None:
                self.tree.own_init = None
                self.read_init(self.slot.init_pipe, 0)
            self._leader_gone(ended if self._reported is None else self._reported)

    def reap_init(self) -> None:
        """Reap the namespace's init: its resource usage includes that of the processes it reaped."""
        if self.slot.status_pipe is None or self.ladder.gave_up:
            return
        self.tree.remove()
        try:
            self.usage.add(os.wait4(self.slot.pid, 0)[2])
        except ChildProcessError:
            pass  # already reaped with its tree

    def read_init(self, fd: int, _: int) -> None:
        """Read what the init of the command's namespaces reports; it has exited, too, unless processes are left."""
        try:
            data = os.read(fd, namespaces.ENDED.size)
        except BlockingIOError:
            return
        self.loop.unwatch(fd)
        if len(data) == namespaces.ENDED.size:
            self._reported, left = namespaces.ENDED.unpack(data)
            if left:
                self._leader_gone(self._reported)

    def _read_status(self, fd: int, _: int) -> None:
        data = os.read(fd, STATUS.size)
        self.loop.unwatch(fd)
        if len(data) == STATUS.size:
            self._leader_gone(STATUS.unpack(data)[0])

    def _leader_gone(self, status: int) -> None:
        if self.leader_ended is not None:
            return
        self.leader_ended = time.monotonic()
        self.status = status
        self._send_ending()
        if not self.tree.empty():
            if leftovers := processes.describe(self.tree, self.orders):
                self.evidence["leftovers"] = leftovers
            self.ladder.begin(self.leader_ended, hook=False)


def _namespaces(orders: dict[str, Any], spare: Spare) -> list[str]:
    """The namespaces that the command is in, and the keeper is not."""
    plan = orders["isolation"] and orders["isolation"]["plan"]
    if plan is None:
        return spare.namespaces
    if plan["level"] != confine.NAMESPACE:
        return [name for name in spare.namespaces if name != "mount"]
    return ["ipc", "mount", *(["network"] if plan["network"] != "open" else []), "pid", "user", "uts"]
