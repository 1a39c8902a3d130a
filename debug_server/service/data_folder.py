"""Removes a data folder: ends what runs in it, unmounts its workspaces, and deletes what is ours in it.

    survey (nothing is changed) -> purge: servers and runs end -> commands end -> builds end -> unmount -> remove

Processes are found by the locks and run directories in the folder, never by name, and are signalled by pidfd after it
is certain that they are the ones that hold them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import Leftover, list_mounts, remove_tree
from debug_server.errors import DebugServerError, InvalidInputError
from debug_server.runner.environments.build_processes import kill_build
from debug_server.runner.live_commands import LiveCommand, end_commands, live_commands
from debug_server.worktrees.trash import disk_bytes

_IDENTITY = Path("owners/identity")
_DATABASE = Path("data/metadata.db")
_SQLITE = b"SQLite format 3\0"
_WORKSPACES = "worktrees"
_STOP_SECONDS = 15.0
_OURS = frozenset(
    {
        *(
            "artifacts",
            "collected",
            "containers",
            "data",
            "envs",
            "keepers",
            "logs",
            "owners",
            "patches",
            "repos",
            "scratch",
        ),
        *(
            "examples",
            "workers",
            "worktrees",
            "locks",
            "folder",
            "server.lock",
            "server.log",
            "server.json",
            "server.start.lock",
        ),
        *(".gitignore", "CACHEDIR.TAG", ".overlay-probe", ".overlay-probe.lock"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a lock in the folder: a server, or one that runs commands itself."""

    pid: int
    lock: Path
    command_line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One entry of the folder that would be removed."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a purge would end and remove."""

    root: Path
    processes: list[Holder]
    commands: list[LiveCommand]
    workers: list[LiveCommand]
    mounts: list[Path]
    parts: list[Part]
    foreign: list[str]  # entries that are not ours: they stay

    @property
    def size(self) -> int:
        """Bytes that would be freed."""
        return sum(part.size for part in self.parts)


def survey(root: Path) -> Survey:
    """Look, and change nothing; InvalidInputError when ``root`` is not a data folder that may be removed."""
    root = _checked(root)
    _refuse_foreign_mounts(root)
    names = sorted(path.name for path in root.iterdir())
    running = live_commands(root / "keepers")
    workers = [command for command in running if _is_worker(root, command)]
    return Survey(
        root=root,
        processes=_holders(root),
        commands=[command for command in running if command not in workers],
        workers=workers,
        mounts=[mount.target for mount in list_mounts(root / _WORKSPACES)],
        parts=[Part(name=name, size=_size(root / name)) for name in names if name in _OURS],
        foreign=[name for name in names if name not in _OURS],
    )


def purge(found: Survey, *, seconds: float = _STOP_SECONDS) -> list[Leftover]:
    """End and remove what a survey found, and what has begun since; returns what could not be removed."""
    root = _checked(found.root)
    deadline = time.monotonic() + 4 * seconds
    while holders := _holders(root):
        if time.monotonic() > deadline:
            raise DebugServerError(f"process {holders[0].pid} keeps using {root}: end it, then purge again")
        for holder in holders:
            _end(holder, seconds)
    with _no_server(root):
        if survivors := end_commands(live_commands(root / "keepers"), seconds=seconds):
            raise DebugServerError(f"processes {survivors} of commands cannot be ended: nothing was removed")
        _end_builds(root)
        _refuse_foreign_mounts(root)
        left = [item for path in sorted(root.iterdir()) if path.name in _OURS for item in remove_tree(path)]
    with contextlib.suppress(OSError):  # something that is not ours is in it
        root.rmdir()
    return left


def _checked(root: Path) -> Path:
    """A real path of a folder of ours."""
    if not root.is_dir():
        raise InvalidInputError(f"there is no data folder at {root}")
    root = root.resolve()
    owner = root.stat().st_uid
    if os.geteuid() not in (0, owner):
        raise InvalidInputError(f"{root} belongs to user {owner}: purge it as that user or as root")
    if not ((root / _IDENTITY).is_file() or _is_database(root / _DATABASE)):
        raise InvalidInputError(
            f"{root} is not a data folder of debug-server: it has neither {_IDENTITY} nor {_DATABASE}"
        )
    return root


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _refuse_foreign_mounts(root: Path) -> None:
    """Only workspaces are mounted by us; a disk that somebody mounted here is not ours to unmount or to empty."""
    for mount in list_mounts(root):
        if not mount.target.is_relative_to(root / _WORKSPACES) or mount.target == root / _WORKSPACES:
            raise InvalidInputError(f"{mount.target} is a mount point that is not a workspace: unmount it, then purge")


def _is_worker(root: Path, command: LiveCommand) -> bool:
    name = command.log_path.name.rpartition("-")[0]
    return bool(name) and any((root / "workers").glob(f"{name}-*"))


def _size(path: Path) -> int:
    return disk_bytes(path) if path.is_dir() and not path.is_symlink() else path.lstat().st_blocks * 512


def _holders(root: Path) -> list[Holder]:
    """The live processes behind the locks of servers and owners."""
    locks = [(path, _first_number(path)) for path in (root / "data/server.lock", root / "server.lock")]
    locks += [(path, path.stem.partition(".")[2].partition("-")[0]) for path in (root / "owners").glob("*.lock")]
    found: dict[int, Holder] = {}
    for path, number in locks:
        if number.isdigit() and int(number) != os.getpid() and _holds(int(number), path):
            found.setdefault(int(number), Holder(pid=int(number), lock=path, command_line=_command_line(int(number))))
    return list(found.values())


def _first_number(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _holds(pid: int, lock: Path) -> bool:
    """Whether the lock is taken and that very process has its file open: a pid alone may be anybody's by now."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        mine = os.fstat(descriptor)
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.path.samestat(entry.stat(), mine):
                        return True
    finally:
        os.close(descriptor)
    return False


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().strip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


def _end(holder: Holder, seconds: float) -> None:
    """TERM, and after a while KILL, to the process that holds the lock."""
    try:
        process = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return
    try:
        if not _holds(holder.pid, holder.lock):  # it left meanwhile, and the descriptor may be another process's
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
            if select.select([process], [], [], seconds)[0]:
                return
    finally:
        os.close(process)


@contextmanager
def _no_server(root: Path) -> Iterator[None]:
    """Keep servers from starting here for the block."""
    descriptors = []
    try:
        for path in (root / "data/server.lock", root / "server.lock"):
            with contextlib.suppress(FileNotFoundError):
                descriptors.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
                fcntl.flock(descriptors[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise DebugServerError(f"a server was started in {root} meanwhile: purge again") from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _end_builds(root: Path) -> None:
    """End the build tools of environments that a killed process left running."""
    for path in (root / "envs/.locks").glob("*"):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if isinstance(target := json.loads(path.read_text() or "{}").get("target"), str):
                kill_build(target)
