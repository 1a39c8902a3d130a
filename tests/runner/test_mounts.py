"""A command has mounts of its own: nothing that it mounts is mounted for us, nothing that we unmount stays with it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debug_server.disk import detach, list_mounts
from debug_server.runner.keeper import mounts
from debug_server.runner.keeper.linux import cap_sys_admin, stat_fields
from debug_server.runner.spec import CommandSpec
from debug_server.worktrees.overlay_mount import SOURCE, mount_overlay
from tests.running import Bench, Started, Workspace, carrying, eventually, python

_MS_BIND, _MS_SHARED = 0x1000, 0x100000
_WAIT = "while [ ! -e {go} ]; do sleep 0.02; done"

pytestmark = pytest.mark.skipif(not cap_sys_admin(), reason="only a privileged user can mount")


def _mount(source: Path, target: Path, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    status = libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None)
    if status:
        pytest.skip(f"{target} cannot be mounted: {os.strerror(ctypes.get_errno())}")


def _overlay(folder: Path, name: str) -> Path:
    """A workspace as the overlay backend makes it."""
    place = folder / name
    for part in ("lower", "upper", "work", "view"):
        (place / part).mkdir(parents=True)
    (place / "lower" / "file").write_text(name)
    try:
        mount_overlay(place / "view", lower=[place / "lower"], upper=place / "upper", work=place / "work")
    except OSError as error:
        pytest.skip(f"no overlay can be mounted here: {error.strerror}")
    return place / "view"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """For mounts, which are gone after the test."""
    place = tmp_path / "mounted"
    place.mkdir()
    yield place
    for mount in reversed(list_mounts(place)):
        detach(mount.target)


def _run_in(bench: Bench, place: Path, text: str) -> dict[str, bytes]:
    done = bench.supervisor.run_command(bench.session.id, CommandSpec(["sh", "-c", text]), Workspace(place))
    return bench.log(done)


def _sees(pid: int, path: Path) -> bool:
    return f" {path} " in Path(f"/proc/{pid}/mountinfo").read_text()


def _shell(started: Started) -> int | None:
    """The command's shell; a child that it has forked for a moment carries the same words."""
    members = carrying(str(started.run_dir.parent.parent / "go"))
    parents = {pid: int(fields[1]) for pid in members if (fields := stat_fields(pid)) is not None}
    return next((pid for pid, parent in parents.items() if parent not in members), None)


def test_what_a_command_mounts_is_its_own(held: Bench, folder: Path) -> None:
    """A bind mount of a folder of the host is seen by the command alone, and is not there after its end."""
    precious = folder / "precious"
    precious.mkdir()
    (precious / "data").write_text("kept")
    result = held.run(["sh", "-c", f"mkdir m && mount --bind {precious} m && cat m/data"])
    assert held.log(result)["stdout"] == b"kept"
    assert not list_mounts(held.workspace)
    assert not list((held.workspace / "m").iterdir())
    assert "mount" in result.exit.evidence["namespaces"]


@pytest.mark.parametrize("tty", [False, True])
def test_control_groups_are_read_only_for_a_command(held: Bench, tty: bool) -> None:
    """It can neither leave its group nor lift its limits by writing to the files of a group."""
    text = (
        "import os\nfor line in open('/proc/self/mountinfo'):\n"
        " if ' - cgroup' in line:\n"
        "  try: os.mkdir(line.split()[4] + '/out'); print('made')\n"
        "  except OSError as error: print(error.errno)\n"
    )
    result = held.run(python(text), tty=tty)
    found = set(held.log(result)["stdout"].decode().split())
    assert found <= {str(errno.EROFS)}


def test_a_workspace_that_is_mounted_later_is_there(held: Bench, folder: Path) -> None:
    """Keepers wait ahead of time: a workspace that is mounted while they do is in the command's own mounts."""
    assert held.run(["true"]).exit_code == 0  # from here on keepers wait
    view = _overlay(folder, "later")
    assert _run_in(held, view, "cat file")["stdout"] == b"later"


@pytest.mark.parametrize("shared", [False, True])
def test_an_unmounted_workspace_does_not_stay_with_a_command_of_another(
    make_bench: Callable[..., Bench], mechanism: str, folder: Path, shared: bool
) -> None:
    """Whether the mounts outside are shared or not: after the unmount no running command holds the workspace."""
    bench = make_bench(mechanism)
    if shared:
        _mount(folder, folder, _MS_BIND)
        _mount(folder, folder, _MS_SHARED)
    other = _overlay(folder, "other")
    go = bench.root / "artifacts" / "go"
    started = bench.start(["sh", "-c", f"echo ready; {_WAIT.format(go=go)}"])
    started.await_output(b"ready")
    late = _overlay(folder, "late")
    pid = eventually(lambda: _shell(started), what="the command's process")
    assert _sees(pid, other) is shared
    assert _sees(pid, late) is shared
    assert detach(other)
    assert detach(late)
    assert not _sees(pid, other)
    assert not _sees(pid, late)
    go.touch()
    assert started.result().exit_code == 0


def test_the_command_keeps_its_own_workspace(held: Bench, folder: Path) -> None:
    """Of the workspaces that are mounted the one that it works in stays, and what it writes lies there."""
    _overlay(folder, "other")
    view = _overlay(folder, "own")
    assert _run_in(held, view, "cat file; echo new > written")["stdout"] == b"own"
    assert (view / "written").read_text() == "new\n"


def test_a_later_workspace_of_another_is_not_there(held: Bench, folder: Path) -> None:
    """A keeper that has run commands gives the next one the workspace that it works in, and no other that is new."""
    assert held.run(["true"]).exit_code == 0
    other, own = _overlay(folder, "other"), _overlay(folder, "own")
    mounted = Path("/proc/self/mountinfo").read_text().splitlines()
    shared = any(f" {other} " in line and " shared:" in line for line in mounted)
    seen = _run_in(held, own, "cat file; cat /proc/self/mountinfo")["stdout"].decode()
    assert seen.startswith("own")
    assert f" {own} " in seen
    assert (f" {other} " in seen) is shared


def test_an_idle_keeper_holds_no_mount_that_is_gone(make_bench: Callable[..., Bench], folder: Path) -> None:
    """It keeps a copy of the mounts for the next command, until one of them is unmounted."""
    bench = make_bench(spare_keepers=1)
    if bench.supervisor.pool.capabilities.mechanism != "cgroup-v1" or not mounts.can_attach():
        pytest.skip("only keepers of version 1 groups keep a copy, since Linux 5.2")
    _mount(folder, folder, _MS_BIND)

    def keeper_with_copy() -> int | None:  # again and again: any other mount on this machine ends the copy, too
        keeper = int(bench.log(bench.run(["sh", "-c", "echo ${DEBUG_SERVER_RUN%%-*}"]))["stdout"])
        return keeper if len(_mount_namespaces(keeper)) > 1 else None

    keeper = eventually(keeper_with_copy, what="an idle keeper with a copy of the mounts")
    assert detach(folder)
    eventually(lambda: len(_mount_namespaces(keeper)) == 1, what="the end of the copy")
    assert bench.run(["true"]).exit_code == 0


_ALTERATIONS = {
    "mount": "mount --bind {place}/a {place}/b",
    "unmount": "umount {place}/c",
    "read-only": "mount -o remount,bind,ro {place}/c",
    "propagation": "mount --make-shared {place}/c",
}


@pytest.mark.parametrize("alteration", list(_ALTERATIONS))
def test_a_command_does_not_see_the_mounts_of_the_one_before(
    make_bench: Callable[..., Bench], folder: Path, alteration: str
) -> None:
    """One keeper runs them one after the other, and they may share a copy of the mounts while nobody alters it."""
    bench = make_bench(spare_keepers=1)
    for name in ("a", "b", "c"):
        (folder / name).mkdir()
    _mount(folder / "c", folder / "c", _MS_BIND)
    alter = _ALTERATIONS[alteration].format(place=folder)

    def after(text: str) -> tuple[str, list[list[str]]]:
        """The keeper that ran it, and the mounts that it left; their ids differ from one copy to the next."""
        done = bench.run(["sh", "-ec", f"{text}; echo ${{DEBUG_SERVER_RUN%%-*}}; cat /proc/self/mountinfo"])
        assert done.exit_code == 0
        keeper, *lines = bench.log(done)["stdout"].decode().splitlines()
        return keeper, [line.split()[2:] for line in lines if str(folder) in line]

    def one_keeper_ran_all() -> bool:
        (first, before), (second, altered), (third, later) = after("true"), after(alter), after("true")
        assert altered != before
        assert later == before
        return first == second == third

    for _ in range(3):
        eventually(one_keeper_ran_all, what="three commands of one keeper")


def _mount_namespaces(keeper: int) -> set[str]:
    """Those that it has open."""
    found = set()
    for entry in Path(f"/proc/{keeper}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            found.add(os.readlink(entry))
    return {link for link in found if link.startswith("mnt:")}


def test_workspaces_are_known_by_their_source() -> None:
    """Worktrees mount with the name that keepers look for."""
    assert SOURCE == mounts.WORKSPACE


def test_the_survey_of_mounts() -> None:
    """Groups wherever they are mounted; workspaces only where an unmount outside would not reach a copy."""
    groups, workspaces, _ = mounts.survey(
        b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        b"32 31 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
        b"33 1 0:30 / /my\\040groups rw shared:4 - cgroup2 none rw\n"
        b"34 1 0:31 / /a\\040b rw,nosuid - overlay debug-server rw,lowerdir=/x\n"
        b"35 1 0:32 / /c rw shared:7 - overlay debug-server rw,lowerdir=/x\n"
        b"36 1 0:33 / /d rw - overlay overlay rw,lowerdir=/x\n"
    )
    assert mounts.topmost(groups) == [b"/my groups", b"/sys/fs/cgroup"]
    assert workspaces == [b"/a b"]
