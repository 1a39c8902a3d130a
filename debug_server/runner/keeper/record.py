"""The exit record: assembled from what was seen and measured, and published by atomic rename."""

from __future__ import annotations

import errno
import json
import os

from debug_server.runner.keeper.linux import stat_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXIT = "exit.json"
_LISTED_PROCESSES = 40


def claim(name: str, handle: dict[str, Any], run_dir: str) -> bool:
    """Link the handle into the current directory; False when a recovering server was first: this attempt must not run.

    That server renames the directory before it removes its own handle, so a link in a renamed directory is too late.
    """
    temporary = f"{name}.{os.getpid()}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(fd, json.dumps(handle).encode())
        os.close(fd)
        try:
            os.link(temporary, name)
        finally:
            os.unlink(temporary)
        return os.path.samefile(".", run_dir)
    except (FileExistsError, FileNotFoundError):
        return False


def publish(record: dict[str, Any]) -> None:
    """Put the record into the current directory, whole or not at all."""
    temporary = f"{EXIT}.tmp"
    data = json.dumps(record).encode()
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
    os.rename(temporary, EXIT)


def describe(pids: list[int]) -> list[dict[str, Any]]:
    """What ``ps`` would say of these processes."""
    listed = []
    for pid in pids[:_LISTED_PROCESSES]:
        fields = stat_fields(pid)
        if fields is not None:
            listed.append({"pid": pid, "state": fields[0], "ppid": int(fields[1]), "command": _command_line(pid)})
    return listed


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(200).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""
