"""A keeper's run directory: made once, and named after each command for as long as the keeper has it.

    .keeper-PID-START --take--> COMMAND-ATTEMPT --give back--> .keeper-PID-START

The rename decides who has a command: a recovering server puts a directory of its own there to fence off a keeper that
is late. The files are written over instead of made anew: ext4 looks for a new file's inode past all that were freed
within the last seconds, which cost each command milliseconds when every one made and removed five.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HANDLE, EXIT, SOCKET, CRASH = "handle.json", "exit.json", "control.sock", "keeper.err"
PREFIX = ".keeper-"
_DRAFT = "exit.draft"


class RefusedError(Exception):
    """This keeper must not run the command."""


class RunDir:
    """One directory, entered by its keeper; its socket listens all the time."""

    def __init__(self, pid: int, started: int | None) -> None:
        self._name = f"{PREFIX}{pid}-{started}"
        self._path: str | None = None  # where it lies, under whichever name
        self._listener: socket.socket | None = None

    def take(self, path: str, handle: dict[str, Any], wanted: Callable[[], bool]) -> socket.socket:
        """Give it a command's name, with the handle inside; returns where clients will call.

        RefusedError when the command is not this keeper's. A fence that was there may be gone again, but whoever
        removes one has made ``wanted`` false before.
        """
        spare = os.path.join(os.path.dirname(path), self._name)
        try:
            if self._path != spare:
                self._make(spare)
            _write(HANDLE, handle)
        except FileNotFoundError:  # somebody has cleaned up here
            self._make(spare)
            _write(HANDLE, handle)
        try:
            os.rename(spare, path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise RefusedError(_whose(path)) from error
        self._path = path
        if not wanted():
            self.give_back(path)
            raise RefusedError("nobody waits for the command any more")
        assert self._listener is not None
        return self._listener

    def publish(self, record: dict[str, Any]) -> None:
        """Put the exit record there, whole or not at all; repeatable after a full disk."""
        _write(_DRAFT, record)
        os.rename(_DRAFT, EXIT)

    def give_back(self, path: str) -> None:
        """The command is over and stored, or was never ours: its name is free again."""
        spare = os.path.join(os.path.dirname(path), self._name)
        self._path = None  # a directory that cannot be had back is left to recovery, and the next command gets another
        try:
            if os.path.exists(EXIT):
                os.rename(EXIT, _DRAFT)
            os.rename(path, spare)
            self._path = spare
        except OSError:
            pass
        self._refuse_callers()

    def report(self, text: str) -> None:
        """Keep the traceback of a bug of ours for whoever mends it."""
        try:
            with open(CRASH, "w") as file:
                file.write(text)
        except OSError:
            pass

    def leave(self) -> None:
        """Remove it, unless it still bears a command's name: then a server wants its record."""
        if self._path is None or os.path.basename(self._path) != self._name:
            return
        try:
            for name in os.listdir(self._path):
                os.unlink(os.path.join(self._path, name))
            os.rmdir(self._path)
        except OSError:  # somebody else has removed it, or recovery will
            pass

    def _make(self, path: str) -> None:
        self.leave()  # it may lie elsewhere
        os.mkdir(path, 0o700)
        os.chdir(path)
        self._path = path
        if self._listener is not None:
            self._listener.close()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(SOCKET)
        self._listener.listen(16)

    def _refuse_callers(self) -> None:
        """Who called while the directory bore the command's name does not mean the next one.

        Who calls from now on finds by the name that it came too late.
        """
        assert self._listener is not None
        try:
            while True:
                self._listener.accept()[0].close()
        except OSError:  # nobody is there
            return


def _write(name: str, value: dict[str, Any]) -> None:
    """Over what the file held before; nobody reads it under this name."""
    data = json.dumps(value).encode()
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def _whose(path: str) -> str:
    try:
        with open(os.path.join(path, HANDLE), encoding="utf-8") as file:
            fenced = "fenced" in json.load(file)
    except (OSError, ValueError):
        fenced = False
    if fenced:
        return "another server took the command over before it was started"
    return f"{path} exists already: another store uses this artifacts folder, or an old one did; remove it"
