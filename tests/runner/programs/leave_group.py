"""Leaves its control group as root can: mounts the hierarchy anew and writes its pid into the topmost group.

Usage: leave_group.py DIRECTORY MARK [--leave]; prints ``ready`` when a daemon that ignores SIGTERM is outside. With
``--leave`` the first process then exits with status 0.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time


def mount_groups(directory: str) -> str:
    """Mount the hierarchy that holds us; returns the file that takes pids."""
    os.makedirs(directory, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    target = directory.encode()
    with open("/proc/self/cgroup") as file:
        version1 = any("pids" in line.split(":")[1].split(",") for line in file)
    kind, options = (b"cgroup", b"pids") if version1 else (b"cgroup2", None)
    if libc.mount(b"none", target, kind, 0, options) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return f"{directory}/cgroup.procs"


def main() -> None:
    """Daemonise outside of the group."""
    members = mount_groups(sys.argv[1])
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open(members, "w") as file:
                file.write(str(os.getpid()))
            os.write(writer, b"x")
            os.closerange(0, 1024)
            while True:
                time.sleep(1000)
        os._exit(0)
    os.wait()
    os.read(reader, 1)
    os.write(1, b"ready\n")
    while "--leave" not in sys.argv:
        time.sleep(1000)


if __name__ == "__main__":
    main()
