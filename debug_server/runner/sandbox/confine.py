"""Applies a plan to the process that becomes the command: the first steps as root of its namespaces, the last bare.

A plan (see ``runner/isolation.py``) has ``level``, ``network``, ``view``, ``landlock`` (the kernel's version, 0: none)
and ``seccomp``. A step that fails raises, and the command is not started.
"""

from __future__ import annotations

import os

from debug_server.runner.keeper.linux import unshare
from debug_server.runner.sandbox import capabilities, landlock, namespaces, root, seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMESPACE, PROCESS = "namespace", "process"


def clone_flags(plan: dict[str, Any]) -> int:
    """The namespaces that the command's init is created in."""
    return namespaces.flags(processes=True, network=plan["network"] != "open")


def enter_view(plan: dict[str, Any], uid: int, gid: int, *, own_processes: bool) -> None:
    """In new namespaces: ids, network and files; ``uid`` and ``gid`` are those outside."""
    namespaces.map_own_ids(uid, gid)
    if plan["network"] == "loopback":
        namespaces.start_loopback()
    root.enter(plan["view"], own_processes=own_processes)


def enter_further_namespaces(plan: dict[str, Any]) -> None:
    """The same for a process that already has a pid namespace, and its /proc."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(namespaces.flags(processes=False, network=plan["network"] != "open"))
    enter_view(plan, uid, gid, own_processes=False)


def give_up_rights(plan: dict[str, Any]) -> None:
    """The last step before exec."""
    if plan["level"] == PROCESS:
        capabilities.drop_what_root_gains()
    capabilities.drop_all()
    capabilities.forbid_new_privileges()
    if plan["landlock"]:
        landlock.restrict(plan["landlock"], None if plan["level"] == NAMESPACE else plan["view"])
    if plan["seccomp"]:
        seccomp.load(seccomp.program(internet=plan["level"] == NAMESPACE or plan["network"] == "open"))
