"""Control groups: where they can be created, and reading and writing their files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from debug_server.runner.keeper.linux import clone

_READ = 1 << 14
_WANTED = ("memory", "pids", "cpu", "cpuacct")


class CgroupError(Exception):
    """Control groups are not available on this machine or for this user."""


def _own_cgroups() -> dict[str, str]:
    """Controller -> path of this process's group; the key '' is version 2."""
    groups = {}
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                groups[controller] = path
    return groups


def _mounts() -> dict[str, tuple[str, str]]:
    """Controller -> (root inside the hierarchy, mount point); the key '' is version 2."""
    found: dict[str, tuple[str, str]] = {}
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, after = line.rstrip("\n").split(" - ", 1)
            root, point = before.split()[3:5]
            kind, _, options = after.split()[:3]
            if kind == "cgroup2":
                found.setdefault("", (root, point))
            elif kind == "cgroup":
                for option in options.split(","):
                    found.setdefault(option, (root, point))
    return found


def own_directories() -> dict[str, str]:
    """Controller -> directory of this process's own group."""
    own, mounts = _own_cgroups(), _mounts()
    result = {}
    for controller, path in own.items():
        if controller in mounts:
            root, point = mounts[controller]
            relative = os.path.relpath(path, root)
            if not relative.startswith(".."):
                result[controller] = os.path.normpath(os.path.join(point, relative))
    return result


def read(path: str) -> str:
    """The text of a control file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _text(fd)
    finally:
        os.close(fd)


def write(path: str, value: str) -> None:
    """Write a control file with one write(2); the error has the path."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        _put(fd, path, value)
    finally:
        os.close(fd)


class ControlFiles:
    """Control files of groups that serve many commands, each opened once.

    A keeper uses twenty of them for each command: to open and close them was a seventh of its CPU time. Lists of
    members are not for this: version 1 returns the same one again.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], int] = {}

    def open_for_writing(self, paths: Iterable[str]) -> None:
        """Open these ahead of time."""
        for path in paths:
            self._descriptor(path, os.O_WRONLY)

    def read(self, path: str) -> str:
        """The text of a control file; FileNotFoundError if its group is gone."""
        return _text(self._descriptor(path, os.O_RDONLY))

    def write(self, path: str, value: str) -> None:
        """Write a control file with one write(2); the error has the path."""
        _put(self._descriptor(path, os.O_WRONLY), path, value)

    def close(self) -> None:
        """Close all of them; a later use opens them again."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, path: str, mode: int) -> int:
        if (path, mode) not in self._open:
            self._open[path, mode] = os.open(path, mode | os.O_CLOEXEC)
        return self._open[path, mode]


def _text(fd: int) -> str:
    text = b""
    try:
        while piece := os.pread(fd, _READ, len(text)):
            text += piece
            if len(piece) < 2048:  # the kernel returns whole records, up to a page
                break
    except OSError as error:
        raise _described(error, "reading a control file") from error
    return text.decode()


def _put(fd: int, path: str, value: str) -> None:
    try:
        os.write(fd, value.encode())  # not pwrite, which /proc refuses; a group's files ignore the position
    except OSError as error:
        raise _described(error, f"writing {value!r} to {path}") from error


def _described(error: OSError, action: str) -> OSError:
    """The error with what was done; an open file of a removed group says ENODEV where a path would say ENOENT."""
    number = errno.ENOENT if error.errno == errno.ENODEV else error.errno or 0
    return OSError(number, f"{os.strerror(number)} {action}")


def read_counter(path: str, key: str, read: Callable[[str], str] = read) -> int:
    """One ``key value`` line of a flat keyed file; 0 when it is not there."""
    try:
        for line in read(path).splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    except OSError:
        pass
    return 0


class Version1:
    """Groups below our own in each version 1 hierarchy; ``pids`` is the one that tracks the tree."""

    name = "cgroup-v1"

    def __init__(self) -> None:
        directories = own_directories()
        self.parents = {name: directories[name] for name in _WANTED if name in directories}
        if "pids" not in self.parents:
            raise CgroupError("no version 1 pids hierarchy is mounted")
        usable = {}
        for controller, parent in self.parents.items():
            # The keeper enters a group to start a command in it, and must be able to leave it.
            if _can_make(parent, "tasks") and os.access(f"{parent}/tasks", os.W_OK):
                usable[controller] = parent
        if "pids" not in usable:
            raise CgroupError(f"{self.parents['pids']} cannot be written")
        self.parents = usable
        self.controllers = sorted(usable)

    def make(self, name: str) -> dict[str, str]:
        """Create one group in each hierarchy: controller -> directory, the same one where they share a hierarchy."""
        paths = {controller: os.path.join(parent, name) for controller, parent in self.parents.items()}
        for path in dict.fromkeys(paths.values()):
            os.mkdir(path)
        return paths


class Version2:
    """Groups below our own in the unified hierarchy, with the controllers that are delegated to us."""

    name = "cgroup-v2"

    def __init__(self) -> None:
        directories = own_directories()
        if "" not in directories:
            raise CgroupError("no version 2 hierarchy is mounted")
        self.parent = directories[""]
        self.controllers = sorted(self._enable())
        self._probe_fork()

    def _enable(self) -> set[str]:
        """Delegate the wanted controllers; a group with processes cannot, so move ours to a leaf first."""
        try:
            offered = set(read(f"{self.parent}/cgroup.controllers").split()) & {"memory", "pids", "cpu"}
        except OSError as error:
            raise CgroupError(str(error)) from error
        if not offered:
            return set()
        try:
            self._delegate(offered)
        except OSError as error:
            if error.errno != errno.EBUSY:
                return set(read(f"{self.parent}/cgroup.subtree_control").split())
            self._move_to_leaf()
            try:
                self._delegate(offered)
            except OSError:
                return set()
        return offered

    def _delegate(self, controllers: set[str]) -> None:
        write(f"{self.parent}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(controllers)))

    def _move_to_leaf(self) -> None:
        leaf = f"{self.parent}/debug-server"
        os.makedirs(leaf, exist_ok=True)
        for pid in (os.getppid(), os.getpid()):
            try:
                write(f"{leaf}/cgroup.procs", str(pid))
            except OSError:
                continue  # not ours to move; the delegation then fails

    def _probe_fork(self) -> None:
        path = f"{self.parent}/debug-server-probe-{os.getpid()}"
        try:
            os.mkdir(path)
        except OSError as error:
            raise CgroupError(f"{self.parent} cannot be written") from error
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                pid = clone(cgroup_fd=fd)
            finally:
                os.close(fd)
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
            if not os.path.exists(f"{path}/cgroup.kill"):
                raise CgroupError("this kernel has no cgroup.kill")
        except OSError as error:
            raise CgroupError(f"a process cannot be started in {path}: {error.strerror}") from error
        finally:
            os.rmdir(path)

    def make(self, name: str) -> dict[str, str]:
        """Create one group; all controllers share its directory."""
        path = os.path.join(self.parent, name)
        os.mkdir(path)
        return {"": path}


def _can_make(parent: str, member_file: str) -> bool:
    path = os.path.join(parent, f"debug-server-probe-{os.getpid()}")
    try:
        os.mkdir(path)
    except OSError:
        return False
    try:
        return os.access(os.path.join(path, member_file), os.W_OK)
    finally:
        os.rmdir(path)
