"""Applies limits to a tree, and reads the counters that prove what happened.

A plan maps each limit's name to ``{"asked": value, "by": "cgroup" | "rlimit" | "affinity" | "keeper" | None}``; it is
made by ``debug_server.runner.limits`` from the capabilities of this machine.
"""

from __future__ import annotations

import math
import os
import resource

from debug_server.runner.keeper import cgroup
from debug_server.runner.keeper.group_tree import Version1Tree, Version2Tree
from debug_server.runner.keeper.linux import current_cpu
from debug_server.runner.keeper.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Plan = dict[str, "dict[str, Any]"]
_CPU_PERIOD = 100_000  # the kernel's default


def rlimits(plan: Plan) -> dict[str, float]:
    """The limits that the preforked child sets on itself."""
    return {name: item["asked"] for name, item in plan.items() if item["by"] == "rlimit"}


def affinity(plan: Plan) -> list[int]:
    """The processors of a command with a CPU quota, so that ``nproc`` prints a number that fits it.

    They begin at the one the keeper runs on: moving to a busy CPU costs milliseconds, and the scheduler has already
    spread the keepers. Empty if it may use all of the keeper's.
    """
    if "cpus" not in plan:
        return []
    available = sorted(os.sched_getaffinity(0))
    count = max(1, math.ceil(plan["cpus"]["asked"]))
    if count >= len(available):
        return []
    here = current_cpu()
    first = available.index(here) if here in available else 0
    return [available[(first + index) % len(available)] for index in range(count)]


def apply(tree: Tree, plan: Plan) -> None:
    """Write the cgroup's limits before the command is released."""
    wanted = {name: item["asked"] for name, item in plan.items() if item["by"] == "cgroup"}
    if isinstance(tree, Version1Tree):
        _apply_version1(tree, wanted)
    elif isinstance(tree, Version2Tree):
        _apply_version2(tree.path, wanted)


def _apply_version1(tree: Version1Tree, wanted: dict[str, Any]) -> None:
    """Replace the limits of the last command: clearing them after each command would cost it 30 us."""
    for name in [name for name, value in tree.limits.items() if wanted.get(name) != value]:
        _clear(tree, name)
    tree.limits = wanted
    groups = tree.groups
    if "memory_bytes" in wanted:
        tree.write(groups["memory"] + "/memory.limit_in_bytes", str(wanted["memory_bytes"]))
        try:
            tree.write(groups["memory"] + "/memory.memsw.limit_in_bytes", str(wanted["memory_bytes"]))
        except FileNotFoundError:
            pass  # swap is not accounted here
    if "pids" in wanted:  # one more, for the keeper that spawns from inside; `set_process_limit` removes it
        tree.write(groups["pids"] + "/pids.max", str(wanted["pids"] + 1))
    if "cpus" in wanted:
        tree.write(groups["cpu"] + "/cpu.cfs_quota_us", str(_quota(wanted["cpus"])))


def _clear(tree: Version1Tree, name: str) -> None:
    """Remove one limit of the last command."""
    groups = tree.groups
    if name == "memory_bytes":
        try:
            tree.write(groups["memory"] + "/memory.memsw.limit_in_bytes", "-1")
        except FileNotFoundError:
            pass
        tree.write(groups["memory"] + "/memory.limit_in_bytes", "-1")
    elif name == "pids":
        tree.write(groups["pids"] + "/pids.max", "max")
    elif name == "cpus":
        tree.write(groups["cpu"] + "/cpu.cfs_quota_us", "-1")


def set_process_limit(tree: Tree, plan: Plan) -> None:
    """After the start of the command: set the exact limit of processes."""
    if isinstance(tree, Version1Tree) and "pids" in plan:
        tree.write(tree.groups["pids"] + "/pids.max", str(plan["pids"]["asked"]))


def _apply_version2(path: str, wanted: dict[str, Any]) -> None:
    if "memory_bytes" in wanted:
        cgroup.write(path + "/memory.max", str(wanted["memory_bytes"]))
        if os.path.exists(path + "/memory.swap.max"):
            cgroup.write(path + "/memory.swap.max", "0")
    if "pids" in wanted:
        cgroup.write(path + "/pids.max", str(wanted["pids"]))
    if "cpus" in wanted:
        cgroup.write(path + "/cpu.max", f"{_quota(wanted['cpus'])} {_CPU_PERIOD}")


def _quota(cpus: float) -> int:
    return max(1000, int(cpus * _CPU_PERIOD))  # the kernel refuses less than a millisecond


class Usage:
    """Resource usage of the processes that a keeper reaped."""

    def __init__(self) -> None:
        self.cpu_seconds = 0.0
        self.peak_memory = 0

    def add(self, usage: resource.struct_rusage) -> None:
        """Add one process and the children that it had reaped."""
        self.cpu_seconds += usage.ru_utime + usage.ru_stime
        self.peak_memory = max(self.peak_memory, usage.ru_maxrss * 1024)


class Meter:
    """Reads the counters of a tree's groups; all are 0 without groups."""

    def __init__(self, tree: Tree) -> None:
        self._v1 = tree.groups if isinstance(tree, Version1Tree) else {}
        self._v2 = tree.path if isinstance(tree, Version2Tree) else None
        self._read = tree.read if isinstance(tree, Version1Tree) else cgroup.read

    def cpu_seconds(self) -> float:
        """CPU time of everything that ever ran in the tree."""
        if self._v2:
            return cgroup.read_counter(self._v2 + "/cpu.stat", "usage_usec") / 1e6
        return self._number("cpuacct", "cpuacct.usage") / 1e9

    def cpu_patience(self, budget: float) -> float:
        """The minimum time until the budget is used, with every CPU busy."""
        left = budget - self.cpu_seconds()
        return max(left / (os.cpu_count() or 1), 0.005)

    def peak_memory(self) -> int:
        """The peak memory of the tree."""
        if self._v2:
            try:
                return int(cgroup.read(self._v2 + "/memory.peak"))
            except (OSError, ValueError):
                return 0
        return self._number("memory", "memory.max_usage_in_bytes")

    def oom_kills(self) -> int:
        """Processes that the kernel killed for memory."""
        if self._v2:
            return cgroup.read_counter(self._v2 + "/memory.events", "oom_kill")
        if "memory" in self._v1:
            return cgroup.read_counter(self._v1["memory"] + "/memory.oom_control", "oom_kill", self._read)
        return 0

    def counters(self, plan: Plan, oom_kills: int) -> dict[str, int]:
        """The counters that are not 0; read only for limits that are set."""
        found = {"oom_kill": oom_kills}
        if "pids" in plan:
            found["pids_max"] = self._pids_refused()
        if "cpus" in plan:
            found["throttled"] = self._throttled()
        return {name: value for name, value in found.items() if value}

    def _pids_refused(self) -> int:
        directory = self._v2 or self._v1.get("pids")
        return cgroup.read_counter(directory + "/pids.events", "max", self._read) if directory else 0

    def _throttled(self) -> int:
        directory = self._v2 or self._v1.get("cpu")
        return cgroup.read_counter(directory + "/cpu.stat", "nr_throttled", self._read) if directory else 0

    def _number(self, controller: str, name: str) -> int:
        if controller not in self._v1:
            return 0
        try:
            return int(self._read(f"{self._v1[controller]}/{name}"))
        except (OSError, ValueError):
            return 0
