"""Decides which limits can be enforced on this machine, and by which mechanism."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from debug_server.errors import InvalidInputError, UnmetRequirementError
from debug_server.model import LEVELS, LIMITS, NETWORKS, Limits

LimitPlan = dict[str, dict[str, Any]]

# Names on the command line -> fields of Limits.
REQUIRE_NAMES = {limit.option: name for name, limit in LIMITS.items()}
CGROUP = "cgroup"
_CONTROLLERS = {"memory_bytes": "memory", "cpus": "cpu", "cpu_seconds": "cpuacct", "pids": "pids"}
# Per-process limits do not bound a tree: these are met only by a cgroup.
WHOLE_TREE = tuple(LIMITS[name].option for name in _CONTROLLERS)
# What enforces each limit where no cgroup does; None in a plan means that nothing does.
_FALLBACK = {
    "memory_bytes": "rlimit",
    "cpus": "affinity",
    "cpu_seconds": "rlimit",
    "pids": "rlimit",
    "open_files": "rlimit",
    "file_size_bytes": "rlimit",
    "output_bytes": "keeper",
    "wall_seconds": "keeper",
    "idle_seconds": "keeper",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the fork server can enforce, as tested at its start."""

    mechanism: str
    controllers: frozenset[str]
    root: bool
    hard: Mapping[str, int] = field(default_factory=dict)  # maximum of per-process limits
    namespaces: frozenset[str] = frozenset()  # namespaces that each command gets
    isolation: Mapping[str, Any] = field(default_factory=dict)  # see ``sandbox/probe.py``

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Capabilities:
        """From the fork server's hello."""
        return cls(
            mechanism=data["mechanism"],
            controllers=frozenset(data["controllers"]),
            root=data["root"],
            hard=data["hard"],
            namespaces=frozenset(data["namespaces"]),
            isolation=data["isolation"],
        )


def enforcers(capabilities: Capabilities) -> dict[str, str | None]:
    """For each limit, by its option: the mechanism that would enforce it here, or None."""
    return {limit.option: _mechanism(name, capabilities) for name, limit in LIMITS.items()}


def controller_of(option: str) -> str:
    """The cgroup controller that enforces a limit of ``WHOLE_TREE`` on a whole tree."""
    return _CONTROLLERS[REQUIRE_NAMES[option]]


def plan_limits(limits: Limits, capabilities: Capabilities, require: Collection[str] = ()) -> LimitPlan:
    """The mechanism for each requested limit, or None; UnmetRequirementError if a required one is not enforced."""
    plan = {name: _item(name, value, capabilities) for name, value in limits.requested().items()}
    for name in require:
        _check_required(name, plan, capabilities)
    return plan


def _item(name: str, value: float, capabilities: Capabilities) -> dict[str, Any]:
    """The requested value, the mechanism, and the value in force if that is lower."""
    by = _mechanism(name, capabilities)
    item: dict[str, Any] = {"asked": value, "by": by}
    if by == "rlimit" and name in capabilities.hard and value > capabilities.hard[name]:
        item["in_force"] = capabilities.hard[name]
    return item


def _mechanism(name: str, capabilities: Capabilities) -> str | None:
    """A cgroup if available, else the next best mechanism; None if nothing enforces the limit."""
    controller = _CONTROLLERS.get(name)
    if controller in capabilities.controllers or (name == "cpu_seconds" and capabilities.mechanism == "cgroup-v2"):
        return "cgroup"
    if name == "pids" and capabilities.root:
        return None  # the kernel does not count root's processes
    return _FALLBACK[name]


def _check_required(name: str, plan: LimitPlan, capabilities: Capabilities) -> None:
    if name == CGROUP:
        if not capabilities.mechanism.startswith("cgroup"):
            raise UnmetRequirementError(
                f"--require cgroup: process trees are contained by {capabilities.mechanism} here; "
                "run where control groups are delegated to this user, or leave the requirement out"
            )
        return
    if name not in REQUIRE_NAMES:
        known = ", ".join([*REQUIRE_NAMES, CGROUP, *LEVELS[1:], *(f"network={name}" for name in NETWORKS)])
        raise InvalidInputError(f"--require {name!r} is not known: use one of {known}")
    item = plan.get(REQUIRE_NAMES[name])
    if item is None:
        raise InvalidInputError(f"--require {name} needs a value: no {name} limit was given")
    if "in_force" in item:
        raise UnmetRequirementError(
            f"--require {name}: {item['asked']:g} is more than the hard limit of {item['in_force']} here; "
            "set a lower limit, or raise the hard limit"
        )
    if item["by"] is None or (name in WHOLE_TREE and item["by"] != "cgroup"):
        raise UnmetRequirementError(
            f"--require {name}: {'only ' + item['by'] if item['by'] else 'nothing'} could enforce it here "
            f"(process trees are contained by {capabilities.mechanism}); delegate the {controller_of(name)} cgroup "
            "controller to this user, or leave the requirement out"
        )
