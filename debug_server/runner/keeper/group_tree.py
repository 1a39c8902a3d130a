"""Process trees in control groups, and rebuilding any tree from a dead keeper's handle."""

from __future__ import annotations

import os
import signal

from debug_server.runner.keeper import cgroup
from debug_server.runner.keeper.linux import stat_fields
from debug_server.runner.keeper.tree import (
    MarkedTree,
    NamespaceTree,
    Tree,
    descendants,
    has_children,
    has_zombies,
    send_signal,
    stop_then_kill,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_GROUP_KILLS = 20  # after so many, look for processes outside although some of the group are left or not reaped
_NO_GROUP_BELOW = 2  # links of a directory without directories
_MAX_CHARGED_BYTES = 1 << 20
_FLAGS = 6  # index of the flags in the result of ``stat_fields``
_EXITING = 4  # PF_EXITING


class GroupTree(Tree):
    """Members of a control group, and processes that have left it.

    A process with write access to another group can leave its own, but stays below the keeper, which is a subreaper.
    """

    hierarchy = ""  # the hierarchy whose membership counts, as in /proc/PID/cgroup

    def __init__(self) -> None:
        self._keeper = self._kills = 0

    def include_below(self, keeper: int) -> None:
        self._keeper, self._kills, self.excluded, self.own_init, self.left = keeper, 0, None, None, set()

    def pids(self) -> list[int]:
        members = self.members()
        return members + self._outside(members)

    def first_pids(self, count: int) -> list[int]:
        """Without a search for processes outside if the group has as many: with 200 below the keeper it takes 5 ms."""
        members = self.members()[:count]
        return members if len(members) == count else self.pids()[:count]

    def members(self) -> list[int]:
        """The pids in the group."""
        raise NotImplementedError

    def group(self) -> str:
        """The unique name of the group."""
        raise NotImplementedError

    def empty(self) -> bool:
        return self.group_empty() and not self._has_children()

    def group_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members()

    def kill(self) -> None:
        if self.own_init is not None:  # the kernel ends all processes of its namespace with it
            send_signal(self.own_init, signal.SIGKILL)
        self.kill_group()
        self._kills += 1
        # A look at each process below the keeper: with 200 of them it takes longer than they take to end.
        only_outside = self.group_empty() and not has_zombies()
        if self._keeper and (only_outside or self._kills > _GROUP_KILLS):
            stop_then_kill(lambda: self._outside(self.members()))

    def kill_group(self) -> None:
        """End the members."""
        raise NotImplementedError

    def _has_children(self) -> bool:
        """Whether the keeper has children: a process that left the group is one, or becomes one."""
        return bool(self._keeper) and has_children()

    def _outside(self, members: list[int]) -> list[int]:
        if not self._has_children():
            return []
        inside = {*members} if self.own_init is None else {*members, self.own_init}
        if self.excluded is not None:
            inside |= {self.excluded, *descendants(self.excluded)}
        found = [pid for pid in descendants(self._keeper, inside) if self._has_left(pid)]
        self.left = {*self.left, *found}
        return found

    def _has_left(self, pid: int) -> bool:
        try:
            groups = cgroup.read(f"/proc/{pid}/cgroup")
        except OSError:  # it has ended
            return False
        fields = stat_fields(pid)
        if fields is None or int(fields[_FLAGS]) & _EXITING:  # version 1 lists an exiting process in the root group
            return False
        for line in groups.splitlines():
            _, controllers, path = line.split(":", 2)
            if self.hierarchy in controllers.split(","):
                return self.group() not in path.split("/")
        return False


class Version2Tree(GroupTree):
    """Members of one version 2 group."""

    mechanism = "cgroup-v2"

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def members(self) -> list[int]:
        return _members(self.path)

    def group(self) -> str:
        return os.path.basename(self.path)

    def describe(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "groups": {"": self.path}}

    def kill_group(self) -> None:
        try:
            cgroup.write(f"{self.path}/cgroup.kill", "1")
        except FileNotFoundError:
            pass

    def group_empty(self) -> bool:
        try:
            return "populated 0" in cgroup.read(f"{self.path}/cgroup.events")
        except OSError:
            return True

    def remove(self) -> bool:
        return _remove_below(self.path)


class Version1Tree(GroupTree):
    """Members of one version 1 pids group and its siblings in the other hierarchies."""

    mechanism = "cgroup-v1"
    hierarchy = "pids"

    def __init__(self, groups: dict[str, str], files: cgroup.ControlFiles | None = None) -> None:
        """With ``files`` the groups serve many commands, until they are removed."""
        super().__init__()
        self.groups = groups
        self.limits: dict[str, Any] = {}  # what was written to them
        self._files = files
        self._directories = list(dict.fromkeys(groups.values()))
        self.read, self.write = (files.read, files.write) if files else (cgroup.read, cgroup.write)

    def members(self) -> list[int]:
        return _members(self.groups["pids"])

    def group(self) -> str:
        return os.path.basename(self.groups["pids"])

    def describe(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "groups": self.groups}

    def group_empty(self) -> bool:
        try:  # cheaper than the list of members; it counts processes that were not reaped, which are no members
            if self.read(self.groups["pids"] + "/pids.current") == "0\n":
                return True
        except OSError:
            pass
        return super().group_empty()

    def kill_group(self) -> None:
        try:
            self.write(self.groups["pids"] + "/pids.max", "0")
        except FileNotFoundError:
            return
        for pid in self.members():
            send_signal(pid, signal.SIGKILL)

    def reset(self) -> bool:
        """Reset empty groups for the next command, which gets its own limits; False if new ones are needed.

        Creating and removing four groups costs a millisecond. What a command leaves charged to them (mostly page cache)
        would count for the next one; a small remainder comes from the kernel's batching.
        """
        try:
            if any(os.stat(path).st_nlink > _NO_GROUP_BELOW for path in self._directories):
                return False
            if "memory" in self.groups:
                if int(self.read(self.groups["memory"] + "/memory.usage_in_bytes")) > _MAX_CHARGED_BYTES:
                    return False
                self.write(self.groups["memory"] + "/memory.max_usage_in_bytes", "0")
            if "cpuacct" in self.groups:
                self.write(self.groups["cpuacct"] + "/cpuacct.usage", "0")
        except (OSError, ValueError):
            return False
        return True

    def remove(self) -> bool:
        if self._files is not None:
            self._files.close()
        removed = [_remove_below(path) for path in self._directories]
        return all(removed)


def rebuild(description: dict[str, Any]) -> Tree:
    """A dead keeper's tree, from its handle."""
    mechanism = description["mechanism"]
    if mechanism == Version2Tree.mechanism:
        return Version2Tree(description["groups"][""])
    if mechanism == Version1Tree.mechanism:
        return Version1Tree(description["groups"])
    if mechanism == NamespaceTree.mechanism:
        return NamespaceTree(description["init"], description["started"])
    return MarkedTree(description["marker"])


def _members(path: str) -> list[int]:
    """Processes in a group and in the groups that the command created below it.

    The list is opened each time: version 1 goes on to return the same one through an open file.
    """
    found: list[int] = []
    for directory in _groups_below(path):
        try:
            found += map(int, cgroup.read(f"{directory}/cgroup.procs").split())
        except OSError:
            continue
    return [pid for pid in found if pid > 0]


def _groups_below(path: str) -> list[str]:
    """A group and those below it, outermost first; the link count avoids a listing if there are none."""
    try:
        if os.stat(path).st_nlink <= _NO_GROUP_BELOW:
            return [path]
    except OSError:
        return []
    return [directory for directory, _, _ in os.walk(path)]


def _remove_below(path: str) -> bool:
    """Remove a group and those below it; one that was just emptied may be busy for a moment."""
    for directory in reversed(_groups_below(path)):
        try:
            os.rmdir(directory)
        except OSError:
            continue
    return not os.path.exists(path)
