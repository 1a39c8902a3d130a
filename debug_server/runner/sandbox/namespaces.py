"""Namespaces of a command's own: users, processes, mounts, messages, host name, network; and its first process."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from debug_server.runner.keeper.linux import CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

NEW_MESSAGES, NEW_HOST_NAME, NEW_NETWORK = 0x08000000, 0x04000000, 0x40000000
OWN = (
    CLONE_NEWUSER | CLONE_NEWNS | NEW_MESSAGES | NEW_HOST_NAME
)  # always; processes and network are the caller's choice
USER_OF_ROOT = 1000  # what root is called inside: programs that are root expect rights that it does not have there
ENDED = struct.Struct("<i?")  # the command's wait status, and whether processes of it are left

_SET_FLAGS, _GET_FLAGS, _UP = 0x8914, 0x8913, 1
_INTERFACE = struct.Struct("16sh14x")
_NO_FILES_ABOVE = 1 << 20


def flags(*, processes: bool, network: bool) -> int:
    """The flags of ``clone`` or ``unshare``."""
    return OWN | (CLONE_NEWPID if processes else 0) | (NEW_NETWORK if network else 0)


def inside_id(outside: int) -> int:
    """The id of a user or group in the new namespace."""
    return outside or USER_OF_ROOT


def map_own_ids(uid: int, gid: int) -> None:
    """Give this process an id again, after it entered a new user namespace; all other users are nobody there."""
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{inside_id(uid)} {uid} 1")
    _write("/proc/self/gid_map", f"{inside_id(gid)} {gid} 1")


def forbid_namespaces_below() -> None:
    """No process in here can make a user namespace, and with it gain capabilities over it."""
    _write("/proc/sys/user/max_user_namespaces", "0")


def start_loopback() -> None:
    """In a new network namespace: let processes in here reach each other under 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        request = bytearray(_INTERFACE.pack(b"lo", 0))
        fcntl.ioctl(any_socket, _GET_FLAGS, request)
        _, now = _INTERFACE.unpack(request)
        fcntl.ioctl(any_socket, _SET_FLAGS, _INTERFACE.pack(b"lo", now | _UP))


def serve_as_init(child: int, report: int) -> NoReturn:
    """Stay as init of a pid namespace: reap, and write to ``report`` once, when the command's process has ended.

    It exits with the last process.
    """
    try:
        os.dup2(report, 0)
        os.closerange(1, _NO_FILES_ABOVE)
        _reap(child)
    finally:
        os._exit(1)


def _reap(child: int) -> NoReturn:
    ended = False
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)
        if pid == child and not ended:
            ended = True
            os.write(0, ENDED.pack(status, _reap_others()))


def _reap_others() -> bool:
    """Reap what has ended; returns whether a process is left."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"{path}: {os.strerror(error.errno or 0)}") from error
    finally:
        os.close(descriptor)
