"""Which program of the command is at the other end of a connection to the proxy."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from ipaddress import IPv4Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TABLES = ("tcp", "udp")
_LOCAL, _INODE = 1, 9  # columns


def program_of(peer: str, pids: Iterable[int]) -> dict[str, Any] | None:
    """Pid and name of the process of ``pids`` that has the socket ``peer``, such as ``127.0.0.1:40000``; None if none.

    ``pids`` are those of the command, as this process sees them. The proxy reports a denial before it answers, so the
    program still waits for the answer then.
    """
    chosen = list(pids)
    for first in chosen:
        inodes = _inodes(first, _hexadecimal(peer))
        if inodes is not None:  # it lives, and all of them share the table of their namespace
            return next((found for pid in chosen if (found := _holder(pid, inodes)) is not None), None)
    return None


def _hexadecimal(peer: str) -> str:
    """As the kernel writes it: the address as a number of the machine's byte order."""
    host, _, port = peer.rpartition(":")
    packed = IPv4Address(host).packed
    return f"{int.from_bytes(packed, sys.byteorder):08X}:{int(port):04X}"


def _inodes(pid: int, local: str) -> set[str] | None:
    found = set()
    for table in _TABLES:
        try:
            with open(f"/proc/{pid}/net/{table}") as file:
                rows = [line.split() for line in file]
        except OSError:
            return None
        found |= {f"socket:[{row[_INODE]}]" for row in rows if row[_LOCAL] == local and row[_INODE] != "0"}
    return found


def _holder(pid: int, inodes: set[str]) -> dict[str, Any] | None:
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            if _link(f"{folder}/{name}") in inodes:
                with open(f"/proc/{pid}/comm") as file:
                    return {"pid": pid, "program": file.read().strip()}
    except OSError:  # it has ended
        return None
    return None


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
