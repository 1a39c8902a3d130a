"""The file system that a command sees: a new root with chosen parts of the machine's, most of them read-only.

A view is a list of places, a folder before what is inside it: a kind, the path inside, and a value. With ``read`` and
``write`` that is the path outside, with ``link`` the target, with ``text`` the content; ``hide`` is an empty folder.
What the view does not name is not there.
"""

from __future__ import annotations

import os

from debug_server.runner.keeper import linux

_BASE = "/tmp"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_CHANGE_THE_MACHINE = ("sys", "irq", "bus", "fs", "sysrq-trigger")  # below /proc, for a command with root's id
_TELL_OF_THE_MACHINE = ("kcore", "keys", "timer_list", "kmsg", "sched_debug", "latency_stats")
_DRAFT = "/.draft"
_SMALL = b"mode=755,size=1m"


def enter(view: list[list[str]], *, own_processes: bool) -> None:
    """Make the view the root of this process, which is alone in new user and mount namespaces.

    Without ``own_processes`` the /proc of the caller's mount namespace is shown.
    """
    linux.make_private()
    linux.mount_new(b"tmpfs", _BASE, b"tmpfs", linux.NO_PROGRAM_RIGHTS, _SMALL)
    for name in ("old", "new"):
        os.mkdir(f"{_BASE}/{name}")
    linux.pivot_root(_BASE, f"{_BASE}/old")
    os.chdir("/")
    linux.bind("/new", "/new")
    _show_devices()
    _show_processes(own_processes=own_processes)
    taken = [(kind, path, _take(value) if kind in ("read", "write") else value) for kind, path, value in view]
    os.chdir("/new")
    linux.pivot_root(".", ".")
    linux.unmount_lazily(b".")  # the old root, which lies over the new one
    os.chdir("/")
    # Only now: earlier commands may have left links in the session's folders, which must not lead to the old root.
    folders = {"/"}
    for kind, path, value in taken:
        if value is not None:
            _show(kind, path, value, folders)
    linux.set_mount_flags(b"/", linux.READ_ONLY, below=False)


def _take(path: str) -> tuple[int, bool] | None:
    """A descriptor of a copy of the machine's file or folder, and whether it is a folder; None if it is gone."""
    try:
        return linux.clone_mounts(os.fsencode(f"/old{path}")), os.path.isdir(f"/old{path}")
    except FileNotFoundError:  # removed since the plan was made
        return None


def _show(kind: str, path: str, value: str | tuple[int, bool], folders: set[str]) -> None:
    """Show one place; ``folders`` are those that are known to exist."""
    _make_folder(os.path.dirname(path), folders)
    if isinstance(value, tuple):
        source, is_folder = value
        if is_folder:
            _make_folder(path, folders)
        elif not os.path.exists(path):
            _write(path, "")
        flags = linux.NO_PROGRAM_RIGHTS | (linux.READ_ONLY if kind == "read" else 0)
        linux.set_flags_of_copy(source, flags)
        linux.attach_mounts(source, os.fsencode(path))
        os.close(source)
    elif kind == "hide":
        _make_folder(path, folders)
        linux.mount_new(b"tmpfs", path, b"tmpfs", linux.NO_PROGRAM_RIGHTS, _SMALL)
    elif kind == "link":
        os.symlink(value, path)
    elif os.path.exists(path):  # in a folder of the machine that is shown as a whole
        _write(_DRAFT, value)
        source = linux.clone_mounts(os.fsencode(_DRAFT))
        linux.set_flags_of_copy(source, linux.NO_PROGRAM_RIGHTS | linux.READ_ONLY)
        linux.attach_mounts(source, os.fsencode(path))
        os.close(source)
        os.unlink(_DRAFT)
    else:
        _write(path, value)


def _show_devices() -> None:
    os.mkdir("/new/dev")
    for name in _DEVICES:
        _write(f"/new/dev/{name}", "")
        linux.bind(f"/old/dev/{name}", f"/new/dev/{name}")
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"/new/dev/{name}")
    os.mkdir("/new/dev/pts")
    linux.mount_new(b"devpts", "/new/dev/pts", b"devpts", linux.ONLY_DEVICES, b"newinstance,ptmxmode=0666,mode=620")
    os.mkdir("/new/dev/shm")
    linux.mount_new(b"tmpfs", "/new/dev/shm", b"tmpfs", linux.NO_PROGRAM_RIGHTS, b"mode=1777")


def _show_processes(*, own_processes: bool) -> None:
    os.mkdir("/new/proc")
    if own_processes:
        linux.mount_new(b"proc", "/new/proc", b"proc", linux.NO_PROGRAMS, None)
    else:
        linux.bind("/old/proc", "/new/proc")
    for name in _CHANGE_THE_MACHINE:
        place = f"/new/proc/{name}"
        if os.path.lexists(place):
            linux.bind(place, place)
            linux.set_read_only(os.fsencode(place))
    for name in _TELL_OF_THE_MACHINE:
        if os.path.exists(f"/new/proc/{name}"):
            linux.bind("/old/dev/null", f"/new/proc/{name}")


def _make_folder(path: str, folders: set[str]) -> None:
    """Create a folder and those above it; anything else at its path was left by an earlier command, and goes."""
    if path in folders:
        return
    _make_folder(os.path.dirname(path), folders)
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            os.unlink(path)
            os.mkdir(path)
    folders.add(path)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
