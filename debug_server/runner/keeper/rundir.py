"""A keeper's run directory: created once, and renamed to each command while the keeper runs it.

    .keeper-PID-START --take--> COMMAND-ATTEMPT --give back--> .keeper-PID-START

The rename decides which keeper has a command: recovery puts its own directory there to fence off a late keeper. Files
are overwritten, not created again: ext4 skips recently freed inodes, so five new files cost each command milliseconds.
They stay open meanwhile.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable

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
        self.directory = -1  # a descriptor of it
        self._handle, self._record = _File(HANDLE), _File(_DRAFT)
        self._published = False

    def take(self, path: str, handle: bytes, wanted: Callable[[], bool]) -> socket.socket:
        """Rename it to the command's run directory, with the handle in it; returns the listening socket.

        RefusedError if another keeper or a fence has the command. A fence may already be removed again, but before
        that ``wanted`` becomes false.
        """
        spare = os.path.join(os.path.dirname(path), self._name)
        if self._path != spare:
            self._make(spare)
        try:
            self._rename_with(handle, spare, path)
        except FileNotFoundError:  # it was removed from outside
            self._make(spare)
            self._rename_with(handle, spare, path)
        self._path = path
        if not wanted():
            self.give_back(path)
            raise RefusedError("the command is no longer wanted")
        assert self._listener is not None
        return self._listener

    def _rename_with(self, handle: bytes, spare: str, path: str) -> None:
        self._handle.overwrite(handle)
        try:
            os.rename(spare, path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise RefusedError(_why_taken(path)) from error

    def publish(self, record: bytes) -> None:
        """Write the exit record atomically; may be repeated after a full disk."""
        self._record.overwrite(record)
        os.rename(_DRAFT, EXIT)
        self._published = True

    def give_back(self, path: str) -> None:
        """Rename it back: the command's end is stored, or the command was never ours."""
        spare = os.path.join(os.path.dirname(path), self._name)
        self._path = None  # if it cannot be renamed, recovery removes it, and the next command gets a new one
        try:
            if self._published:
                self._published = False
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
        self._path, self._published = path, False
        if self.directory >= 0:
            os.close(self.directory)
        self.directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._handle.create()
        self._record.create()
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


class _File:
    """A file that is overwritten for each command, while nothing reads it under its name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._fd = -1
        self._size = 0  # the file is not longer

    def create(self) -> None:
        """Create it in the working directory."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = os.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = 0

    def overwrite(self, data: bytes) -> None:
        """FileNotFoundError if it cannot be written and was removed."""
        longer, self._size = self._size > len(data), max(self._size, len(data))
        try:
            written = os.pwrite(self._fd, data, 0)
        except OSError:
            os.stat(self._name)
            raise
        if written != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if longer:
            os.ftruncate(self._fd, len(data))
        self._size = len(data)


def _why_taken(path: str) -> str:
    try:
        with open(os.path.join(path, HANDLE), encoding="utf-8") as file:
            fenced = "fenced" in json.load(file)
    except (OSError, ValueError):
        fenced = False
    if fenced:
        return "another server took the command over before it was started"
    return f"{path} already exists: another store uses, or has used, this artifacts folder; remove it"
