"""A keeper's run directory: created once, and renamed to each command while the keeper runs it.

    .keeper-PID-START --take--> COMMAND-ATTEMPT --give back--> .keeper-PID-START

The rename decides which keeper has a command: recovery puts its own directory there to fence off a late keeper. Files
are overwritten, not created again: ext4 skips recently freed inodes, so five new files cost each command milliseconds.
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
        self._path: str | None = None  # its current path
        self._listener: socket.socket | None = None

    def take(self, path: str, handle: dict[str, Any], wanted: Callable[[], bool]) -> socket.socket:
        """Rename it to the command's run directory, with the handle in it; returns the listening socket.

        RefusedError if another keeper or a fence has the command. A fence may already be removed again, but before
        that ``wanted`` becomes false.
        """
        spare = os.path.join(os.path.dirname(path), self._name)
        try:
            if self._path != spare:
                self._make(spare)
            _write(HANDLE, handle)
        except FileNotFoundError:  # it was removed from outside
            self._make(spare)
            _write(HANDLE, handle)
        try:
            os.rename(spare, path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise RefusedError(_why_taken(path)) from error
        self._path = path
        if not wanted():
            self.give_back(path)
            raise RefusedError("the command is no longer wanted")
        assert self._listener is not None
        return self._listener

    def publish(self, record: dict[str, Any]) -> None:
        """Write the exit record atomically; may be repeated after a full disk."""
        _write(_DRAFT, record)
        os.rename(_DRAFT, EXIT)

    def give_back(self, path: str) -> None:
        """Rename it back: the command's end is stored, or the command was never ours."""
        spare = os.path.join(os.path.dirname(path), self._name)
        self._path = None  # if it cannot be renamed, recovery removes it, and the next command gets a new one
        try:
            if os.path.exists(EXIT):
                os.rename(EXIT, _DRAFT)
            os.rename(path, spare)
            self._path = spare
        except OSError:
            pass
        self._drop_waiting_clients()

    def report(self, text: str) -> None:
        """Write the traceback of a bug, for its diagnosis."""
        try:
            with open(CRASH, "w") as file:
                file.write(text)
        except OSError:
            pass

    def remove_unless_in_use(self) -> None:
        """Remove it, unless it has a command's name: then a server still needs its record."""
        if self._path is None or os.path.basename(self._path) != self._name:
            return
        try:
            for name in os.listdir(self._path):
                os.unlink(os.path.join(self._path, name))
            os.rmdir(self._path)
        except OSError:  # already removed, or recovery will remove it
            pass

    def _make(self, path: str) -> None:
        self.remove_unless_in_use()  # it may exist elsewhere
        os.mkdir(path, 0o700)
        os.chdir(path)
        self._path = path
        if self._listener is not None:
            self._listener.close()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(SOCKET)
        self._listener.listen(16)

    def _drop_waiting_clients(self) -> None:
        """Disconnect clients that connected for the previous command.

        Later clients check the directory's name after they have connected.
        """
        assert self._listener is not None
        try:
            while True:
                self._listener.accept()[0].close()
        except OSError:  # no client waits
            return


def _write(name: str, value: dict[str, Any]) -> None:
    """Overwrite a file that nothing reads under this name."""
    data = json.dumps(value).encode()
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def _why_taken(path: str) -> str:
    try:
        with open(os.path.join(path, HANDLE), encoding="utf-8") as file:
            fenced = "fenced" in json.load(file)
    except (OSError, ValueError):
        fenced = False
    if fenced:
        return "another server took the command over before it was started"
    return f"{path} already exists: another store uses, or has used, this artifacts folder; remove it"
