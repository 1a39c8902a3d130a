"""Attacks by what a command leaves behind: mounts, processes, stopped keepers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import httpx

from tests.attacks.requests import (
    await_running,
    configured,
    log_of,
    open_session,
    run,
    start_run,
    submit,
    wait_ended,
)
from tests.attacks.target import AttackSetup, Target, target
from tests.other_users import as_user
from tests.running import PROGRAMS, carrying, eventually, new_mark

# Binds a folder of the host into the working directory, and tmpfs over another, where the server and all others see it.
_MOUNT_FOR_ALL = """
import os, subprocess, sys
precious, server, here = sys.argv[1], sys.argv[2], os.getcwd()
os.makedirs("m"), os.makedirs("t")
enter = ["nsenter", "--mount=/proc/%s/ns/mnt" % server, "--"]
subprocess.run([*enter, "mount", "--bind", precious, here + "/m"], check=True)
subprocess.run([*enter, "mount", "-t", "tmpfs", "none", here + "/t"], check=True)
"""
# The same in the command's own namespace.
_MOUNT_FOR_ITSELF = """
import os, subprocess, sys
precious, server, here = sys.argv[1], "self", os.getcwd()
os.makedirs("m"), os.makedirs("t")
subprocess.run(["mount", "--bind", precious, here + "/m"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "none", here + "/t"], check=True)
"""
_MOUNTED = """
points = [line.split()[4] for line in open("/proc/%s/mountinfo" % server)]
seen = {here + "/m", here + "/t"} <= set(points) and os.path.exists("/proc/%s/root%s/m/file" % (server, here))
print("mounted" if seen else points, flush=True)
"""


def bind_mounts(setup: AttackSetup) -> Iterator[str]:
    """What a command mounts in its folder is not deleted with the folder."""
    precious = setup.root / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep me")
    os.chown(precious, setup.uid, setup.uid)
    if setup.uid == 0:
        prefix, programs = "", {"for all": _MOUNT_FOR_ALL + _MOUNTED, "for itself": _MOUNT_FOR_ITSELF + _MOUNTED}
    else:
        prefix, programs = "unshare --user --map-root-user --mount", {"for itself": _MOUNT_FOR_ITSELF + _MOUNTED}
        if not _may_unshare(setup):
            setup.say("bind mounts: skipped, because a plain user may not make a user namespace on this machine")
            return
    for backend, (name, program) in product(("auto", "pool"), programs.items()):
        place = f"bind-mounts-{backend}-{name.replace(' ', '-')}"
        file = setup.root / f"{place}.py"
        file.write_text(program)
        mount = f'{prefix} {setup.python} {file} {precious} "$(cat {setup.root / place}/pid)"'.strip()
        settings = f'[workspaces]\nbackend = "{backend}"\n'
        template = {"HOST_RUNNER_EXECUTOR": "shell", "HOST_RUNNER_CMD_TEMPLATE": f"{mount} # {{task_id}}"}
        with configured(setup, place, settings, template) as server, server.client(timeout=60) as client:
            (server.root / "pid").write_text(str(server.pid))
            for text in _mounted_and_closed(server, client, mount):
                yield f"{backend}, {name}: {text}"
            server.stop()
            if left := [
                line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(precious) in line
            ]:
                yield f"{backend}, {name}: mounts of a command are left: {left}"
        if not (precious / "file").exists():
            yield f"{backend}, {name}: cleaning up deleted what a command had mounted"


def _mounted_and_closed(server: Target, client: httpx.Client, mount: str) -> Iterator[str]:
    """A session, a task without a workspace and one in a worktree of its own; each must make the mount, and end."""
    session = open_session(client)
    command = submit(client, session, ["sh", "-c", mount])
    wait_ended(client, command["id"], 60)
    if (said := log_of(client, command["id"])) != "mounted\n":
        yield f"the attack was not made: {said}"
    if (answer := client.delete(f"/sessions/{session}")).status_code != 200:
        yield f"the session cannot be closed: {answer.text}"
    if client.get(f"/sessions/{session}").json()["status"] == "running":
        yield "the session stays open"
    root, tree = server.root / "project", server.root / "isolated"
    workspace = {"project_id": 1, "project_root": str(root), "worktree_path": str(tree), "git_branch": "agent/1"}
    for task in (
        {"task_id": "plain"},
        {"task_id": "isolated", "execution_mode": "isolated-worktree", "workspace": workspace},
    ):
        client.post("/tasks/submit", json={"run_id": "r", "prompt": "x", **task}).raise_for_status()
        ended = client.get(f"/tasks/{task['task_id']}/wait?timeout=55").json()
        if ended["status"] != "success" or ended["stdout"] != "mounted\n":
            yield f"the attack of task {task['task_id']} was not made: {ended}"
    if tree.exists():
        yield f"the worktree of a task is left, with {os.listdir(tree)}"
    again = open_session(client)
    ended = wait_ended(client, submit(client, again, ["ls"])["id"], 60)
    if ended["exit_code"] != 0:
        yield f"a later session does not work: {ended}"
    client.delete(f"/sessions/{again}").raise_for_status()


def _may_unshare(setup: AttackSetup) -> bool:
    argv = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    return as_user(setup.uid, argv, cwd=setup.root, env=dict(os.environ)).wait(30) == 0


# What a plain user can try: every file by which a process changes its group. Prints how many took it.
_WRITE_GROUPS = """
import glob, os, sys, time
files = [file for name in ("cgroup.procs", "tasks") for file in glob.glob("/sys/fs/cgroup/**/" + name, recursive=True)]
taken = 0
for file in files:
    try:
        with open(file, "w") as members:
            members.write("0")
        taken += 1
    except OSError:
        pass
print("tried" if files and not taken else (len(files), taken), flush=True)
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 1024)
    time.sleep(600)
while "--leave" not in sys.argv:
    time.sleep(1)
"""


def leaving_the_group(setup: AttackSetup) -> Iterator[str]:
    """A command that moves a child out of its control group leaves nothing running, and the record tells of it."""
    program, root = setup.root / "leave_group.py", setup.uid == 0
    program.write_text((PROGRAMS / "leave_group.py").read_text() if root else _WRITE_GROUPS)
    with target(setup, "leaving-the-group") as server, server.client() as client:
        for how in ("exit", "timeout", "cancel"):
            said = "ready\n" if root else "tried\n"
            for seconds in (5, 60) if how == "timeout" else (100,):
                mark = new_mark(how)
                argv = [setup.python, str(program), "groups", mark, *(["--leave"] if how == "exit" else [])]
                command = start_run(client, argv, wall_seconds=seconds)
                eventually(partial(_said_or_ended, client, command, said), what=f"the escape of {argv}")
                if log_of(client, command) == said:
                    break  # else it was ended before it had escaped, and is given more time
            else:
                yield f"the attack was not made: {log_of(client, command)}"
            if how == "cancel":
                client.post(f"/commands/{command}/cancel").raise_for_status()
            ended = wait_ended(client, command, 100)
            with contextlib.suppress(AssertionError):
                eventually(partial(_gone, mark))
            if left := carrying(mark):
                yield f"after {how}, processes {left} go on"
            counted = ended["exit"]["evidence"].get("left_group", 0)
            if counted != int(root):
                yield f"after {how}, the record counts {counted} processes that left the group: {ended['exit']}"


def _said_or_ended(client: httpx.Client, command: int, wanted: str) -> bool:
    ended = client.get(f"/commands/{command}").json()["finished_at"] is not None
    return ended or log_of(client, command) == wanted


def stopped_keepers(setup: AttackSetup) -> Iterator[str]:
    """A command that stops its keeper is ended all the same, and others still run."""
    stop = "kill -STOP $PPID 2>/dev/null; sleep 600"
    with target(setup, "stopped-keepers") as server, server.client() as client:
        timed = [start_run(client, ["sh", "-c", stop], wall_seconds=2) for _ in range(8)]
        for number in timed:
            ended = wait_ended(client, number, 120)
            if ended["exit_reason"] not in ("timed_out", "lost"):
                yield f"command {number} with a stopped keeper ended as {ended['exit_reason']}"
        ninth = run(server, client, ["true"], wall_seconds=60)
        if ninth["exit_code"] != 0:
            yield f"after eight stopped keepers a command ends as {ninth}"
        number = start_run(client, ["sh", "-c", stop])
        await_running(client, [number])
        client.post(f"/commands/{number}/cancel", timeout=60)
        ended = wait_ended(client, number, 120)
        if ended["exit_reason"] not in ("cancelled", "lost"):
            yield f"a cancelled command with a stopped keeper ended as {ended['exit_reason']}"


def _gone(mark: str) -> bool:
    return not carrying(mark)
