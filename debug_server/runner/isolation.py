"""Decides how a command is confined on this machine, and says what was asked, what is in force, and why not more.

A level of isolation is a name for a set of layers: ``none``, ``process`` (rules of the kernel on one process and its
children) and ``namespace`` (a file system, users and processes of its own). What a machine cannot do is replaced by the
next weaker level, and told in the exit record; ``require`` makes that an error.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.disk import make_private
from debug_server.errors import InvalidInputError, UnmetRequirementError
from debug_server.model import LEVELS, NETWORKS
from debug_server.runner.limits import Capabilities
from debug_server.runner.sandbox import landlock, namespaces
from debug_server.runner.sandbox.system_view import Place, interpreter_places, system_places, tool_places

_NETWORK_REQUIREMENT = "network="
# What a command at the level ``process`` may use besides its view; its /proc and /dev are the machine's.
_ALWAYS: tuple[Place, ...] = (
    *(["read", path, path] for path in ("/proc", "/dev/random", "/dev/urandom")),  # not /dev: root may read disks
    *(["write", path, path] for path in ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/pts", "/dev/ptmx")),
    ["write", "/dev/shm", "/dev/shm"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The isolation that a command asks for, after the defaults."""

    level: str
    network: str
    network_asked: bool  # by the caller: then it must be in force
    require: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The level and the network in force, and why they are not those that were asked for."""

    wish: Wish
    level: str
    network: str
    why: str | None


def is_requirement(name: str) -> bool:
    """Whether a name after ``--require`` is about isolation."""
    return name in LEVELS or name.startswith(_NETWORK_REQUIREMENT)


def decide(wish: Wish, capabilities: Capabilities, *, containers: bool = False) -> Decision:
    """The strongest level up to the one asked for; UnmetRequirementError if a requirement is not met."""
    level, why = _level(wish.level, capabilities, containers=containers)
    network = wish.network
    if not _can_hold(network, level, capabilities):
        if wish.network_asked:
            raise UnmetRequirementError(
                f"network {network!r} cannot be enforced at the isolation level {level!r}"
                + (f" ({why})" if why else "")
                + ": use the level 'namespace', or network 'open'"
            )
        network = "open"
    decision = Decision(wish=wish, level=level, network=network, why=why)
    for name in wish.require:
        _check_required(name, decision)
    return decision


def _can_hold(network: str, level: str, capabilities: Capabilities) -> bool:
    if level == "process" and network == "none":
        return bool(capabilities.isolation["seccomp"])
    return network == "open" or level == "namespace"


def _level(asked: str, capabilities: Capabilities, *, containers: bool) -> tuple[str, str | None]:
    if asked == "none":
        return "none", None
    if containers:
        return "none", "the command starts containers"
    kernel = capabilities.isolation
    why = kernel["namespace"]
    if asked == "namespace" and why is None:
        return "namespace", None
    if kernel["landlock"]:
        return "process", why if asked == "namespace" else None
    return "none", "; ".join(filter(None, [why, "the kernel has no Landlock"]))


def _check_required(name: str, decision: Decision) -> None:
    if name.startswith(_NETWORK_REQUIREMENT):
        wanted = name.removeprefix(_NETWORK_REQUIREMENT)
        if wanted not in NETWORKS:
            raise InvalidInputError(f"--require {name!r} is not known: use one of {_networks()}")
        if decision.network != wanted:
            raise UnmetRequirementError(f"--require {name}: the command's network is {decision.network!r}")
    elif LEVELS.index(decision.level) < LEVELS.index(name):
        because = f": {decision.why}" if decision.why else f": {decision.wish.level!r} was asked for"
        raise UnmetRequirementError(f"--require {name}: the isolation level is {decision.level!r}{because}")


def _networks() -> str:
    return ", ".join(f"{_NETWORK_REQUIREMENT}{name}" for name in NETWORKS)


def report(decision: Decision, capabilities: Capabilities) -> dict[str, Any]:
    """The report card for the exit record."""
    wish, level, kernel = decision.wish, decision.level, capabilities.isolation
    isolated, own = level != "none", level == "namespace"
    scopes = isolated and kernel["landlock"] >= landlock.SCOPES_SINCE
    layers = {
        "files": "namespace" if own else "landlock" if isolated else None,
        "processes": "namespace" if own else None,
        "users": "namespace" if own else None,
        "capabilities": "dropped" if isolated else None,
        "new_privileges": "forbidden" if isolated else None,
        "signals": "namespace" if own else "landlock" if scopes else None,
        "abstract_sockets": "namespace" if own and decision.network != "open" else "landlock" if scopes else None,
        "system_calls": "seccomp" if isolated and kernel["seccomp"] else None,
        "network": None if decision.network == "open" else "namespace" if own else "seccomp",
    }
    found: dict[str, Any] = {
        "asked": wish.level,
        "level": level,
        "network": {"asked": wish.network, "in_force": decision.network},
        "layers": layers,
    }
    return found | ({"why": decision.why} if decision.why else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFolders:
    """The folders of a session that take the place of the user's home and of /tmp; removed with the session."""

    root: Path

    @property
    def home(self) -> Path:
        """Empty at first."""
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        """Instead of /tmp."""
        return self.root / "tmp"

    @property
    def lasting(self) -> Path:
        """Instead of /var/tmp."""
        return self.root / "var-tmp"

    def create(self) -> None:
        """Create those that are missing."""
        for folder in (self.root, self.home, self.temporary, self.lasting):
            if not folder.is_dir():
                make_private(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a command may use besides the machine's programs."""

    workspace: Path
    folders: SessionFolders
    data_folder: Path  # ours: hidden, except for what is named here
    read: Iterable[Path] = ()
    write: Iterable[Path] = ()
    python: Path | None = None  # of its environment
    env: Mapping[str, str]


def kernel_plan(decision: Decision, capabilities: Capabilities, around: Surroundings) -> dict[str, Any] | None:
    """The plan for the keeper's child; None at the level ``none``. See ``sandbox/confine.py``."""
    if decision.level == "none":
        return None
    kernel = capabilities.isolation
    return {
        "level": decision.level,
        "network": decision.network,
        "view": _view(decision, around),
        "landlock": kernel["landlock"],
        "seccomp": kernel["seccomp"],
    }


def variables(decision: Decision, around: Surroundings) -> dict[str, str]:
    """The variables that name the command's own folders."""
    if decision.level == "none":
        return {}
    if decision.level == "process":
        return {"HOME": str(around.folders.home), "TMPDIR": str(around.folders.temporary)}
    return {"TMPDIR": "/tmp", "USER": _NAME, "LOGNAME": _NAME}


_NAME = "user"


def _view(decision: Decision, around: Surroundings) -> list[Place]:
    home = around.env.get("HOME", "/nonexistent")
    places: dict[str, Place] = {}

    def show(found: Iterable[Place]) -> None:
        places.update((place[1], place) for place in found)

    show(system_places())
    if decision.level == "process":
        show(_ALWAYS)
        show(["write", str(path), str(path)] for path in _folders(around.folders))
    else:
        show(_own_folders(home, around.folders))
        show(_names(home))
    show(tool_places(home, around.env.get("PATH", "")))
    show(["read", str(path), os.path.realpath(path)] for path in around.read)
    show(["write", str(path), os.path.realpath(path)] for path in (around.workspace, *around.write))
    if around.python is not None:
        show(interpreter_places(around.python))
    for _, path, outside in [place for place in places.values() if place[0] in ("read", "write")]:
        if is_below(data := str(around.data_folder), outside) and data != outside:
            places.setdefault(hidden := path + data[len(outside) :], ["hide", hidden, ""])
    return [places[path] for path in sorted(places, key=lambda path: path.split("/"))]


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _folders(folders: SessionFolders) -> tuple[Path, ...]:
    return folders.home, folders.temporary, folders.lasting


def _own_folders(home: str, folders: SessionFolders) -> list[Place]:
    shown = zip((home, "/tmp", "/var/tmp"), _folders(folders), strict=True)
    return [["write", path, str(folder)] for path, folder in shown]


def _names(home: str) -> list[Place]:
    """The one user that exists inside, and the one that owns everything else."""
    uid, gid = namespaces.inside_id(os.geteuid()), namespaces.inside_id(os.getegid())
    return [
        [
            "text",
            "/etc/passwd",
            f"{_NAME}:x:{uid}:{gid}::{home}:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n",
        ],
        ["text", "/etc/group", f"{_NAME}:x:{gid}:\nnogroup:x:65534:\n"],
    ]
