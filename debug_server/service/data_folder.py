"""Removes a data folder: ends what runs in it, unmounts its workspaces, and deletes what is ours in it.

    survey (nothing is changed) -> purge: servers and runs end -> commands end -> builds end -> unmount -> remove

Processes are found by the locks and run directories in the folder, never by name. Each is signalled through a pidfd,
after a check that it still holds its lock or run directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debug_server.config import load_runner
from debug_server.disk import Folder, Leftover, list_mounts, open_trusted, remove_entry
from debug_server.errors import DebugServerError, InvalidInputError
from debug_server.runner.environments.build_processes import kill_build
from debug_server.runner.live_commands import LiveCommand, damaged_handles, end_commands, live_commands, user_of
from debug_server.worktrees.trash import disk_bytes

_IDENTITY, _DATABASE = "owners/identity", "data/metadata.db"
_SERVER_LOCKS = "data/server.lock", "server.lock"
_KEEPERS, _BUILD_LOCKS, _TOLD = "keepers", "envs/.locks", "told"
_MAX_NUMBER, _MAX_BUILD_LOCK = 32, 1 << 16
_SQLITE = b"SQLite format 3\0"
_WORKSPACES = "worktrees"
_STOP_SECONDS = 15.0
_KNOWN_ENTRIES = frozenset(
    {
        ".gitignore",
        ".overlay-probe",
        ".overlay-probe.lock",
        "CACHEDIR.TAG",
        "artifacts",
        "collected",
        "containers",
        "data",
        "envs",
        "examples",
        "folder",
        "keepers",
        "locks",
        "logs",
        "owners",
        "patches",
        "private",
        "repos",
        "scratch",
        "server.json",
        "server.lock",
        "server.log",
        "server.start.lock",
        "told",
        "workers",
        "worktrees",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a lock in the folder: a server, or one that runs commands itself."""

    pid: int
    lock: str  # in the folder
    command_line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the folder that would be removed."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a purge would end and remove."""

    root: Path
    identity: tuple[int, int]  # device and inode of the folder that was examined
    processes: list[Holder]
    commands: list[LiveCommand]
    workers: list[LiveCommand]
    damaged: list[str]  # run directories whose contents cannot be trusted: no process is ended because of them
    mounts: list[Path]
    entries: list[Entry]
    foreign: list[str]  # entries that are not ours: they stay

    @property
    def size(self) -> int:
        """Bytes that would be freed."""
        return sum(entry.size for entry in self.entries)


def configured_folder() -> tuple[Path, str | None]:
    """The data folder of the current directory; with the reason, if it is only the user's default folder."""
    runner_config = load_runner()
    if runner_config.location.found is not None or runner_config.loaded.source("paths.artifacts") != "default":
        return runner_config.data, None
    ignored = [f"{path} is ignored ({reason})" for path, reason in runner_config.location.ignored]
    return runner_config.data, ", ".join(["there is no data folder here or above", *ignored])


def survey(root: Path) -> Survey:
    """Examine a data folder without changes; InvalidInputError if ``root`` is not one that may be removed."""
    with _open_data_folder(root) as folder:
        real = _real(folder)
        _refuse_foreign_mounts(real)
        names = folder.names()
        running = live_commands(folder.path / _KEEPERS)
        workers = [command for command in running if _is_worker(folder, command)]
        return Survey(
            root=real,
            identity=_identity(folder),
            processes=_holders(folder),
            commands=[command for command in running if command not in workers],
            workers=workers,
            damaged=[f"{_KEEPERS}/{item.name}: {item.reason}" for item in damaged_handles(folder.path / _KEEPERS)],
            mounts=[mount.target for mount in list_mounts(real / _WORKSPACES)],
            entries=[Entry(name=name, size=_size(folder.path / name)) for name in names if name in _KNOWN_ENTRIES],
            foreign=[name for name in names if name not in _KNOWN_ENTRIES],
        )


def purge(found: Survey, *, seconds: float = _STOP_SECONDS) -> list[Leftover]:
    """End and remove everything in a surveyed folder, also what has started since; returns what remains."""
    with _open_data_folder(found.root) as folder:
        if _identity(folder) != found.identity:
            raise DebugServerError(f"{found.root} was replaced since it was examined: nothing was removed")
        left = _purge(folder, found.root, seconds)
    with contextlib.suppress(OSError):  # something that is not ours is in it
        found.root.rmdir()
    return left


def _purge(folder: Folder, root: Path, seconds: float) -> list[Leftover]:
    deadline = time.monotonic() + 4 * seconds
    while holders := _holders(folder):
        if time.monotonic() > deadline:
            raise DebugServerError(f"process {holders[0].pid} still uses {root}: end it, then purge again")
        for holder in holders:
            _end(folder, holder, seconds)
    with _server_locks_held(folder, root):
        if survivors := end_commands(live_commands(folder.path / _KEEPERS), seconds=seconds):
            raise DebugServerError(f"processes {survivors} of commands cannot be ended: nothing was removed")
        _end_builds(folder)
        _refuse_foreign_mounts(_real(folder))
        return [item for name in folder.names() if name in _KNOWN_ENTRIES for item in remove_entry(folder, name)]


@contextmanager
def _open_data_folder(root: Path) -> Iterator[Folder]:
    """Open a data folder: later calls use this folder, even if its path is replaced."""
    if not root.is_dir():
        raise InvalidInputError(f"there is no data folder at {root}")
    root = root.resolve()
    owner = root.stat()
    if owner.st_uid != os.geteuid():
        raise InvalidInputError(
            f"{root} belongs to user {owner.st_uid}: purge it as that user: {_as_user(owner)} "
            f"debug-server purge {shlex.quote(str(root))}"
        )
    with open_trusted(root) as folder:
        if not _is_data_folder(folder):
            raise InvalidInputError(
                f"{root} is not a data folder of debug-server: it has neither {_IDENTITY} nor {_DATABASE}"
            )
        yield folder


def _as_user(owner: os.stat_result) -> str:
    """The command prefix that runs a program as that user; setpriv for root, because small images have no sudo."""
    if os.geteuid() != 0:
        return f"sudo -H -u '#{owner.st_uid}'"
    return f"setpriv --reuid {owner.st_uid} --regid {owner.st_gid} --clear-groups"


def _real(folder: Folder) -> Path:
    return Path(os.readlink(folder.path))  # noqa: PTH115  the text as the kernel gives it


def _identity(folder: Folder) -> tuple[int, int]:
    found = os.fstat(folder.descriptor)
    return found.st_dev, found.st_ino


def _is_data_folder(folder: Folder) -> bool:
    """Whether it has files of a store; the user's default folder may contain only the record of shown notices."""
    if _starts_with(folder, _IDENTITY, b"") or _starts_with(folder, _DATABASE, _SQLITE):
        return True
    names = set(folder.names())
    return _TOLD in names and names <= _KNOWN_ENTRIES


def _starts_with(folder: Folder, path: str, start: bytes) -> bool:
    """Whether ``path`` is a file that begins with ``start``."""
    try:
        return folder.read(path, len(start)) == start
    except OSError:
        return False


def _refuse_foreign_mounts(root: Path) -> None:
    """InvalidInputError for a mount that is not a workspace: somebody else mounted it, so it is not unmounted."""
    for mount in list_mounts(root):
        if not mount.target.is_relative_to(root / _WORKSPACES) or mount.target == root / _WORKSPACES:
            raise InvalidInputError(f"{mount.target} is a mount point that is not a workspace: unmount it, then purge")


def _is_worker(folder: Folder, command: LiveCommand) -> bool:
    """Whether the command is a run of a supervised worker: its log is named after a folder in ``workers``."""
    name = command.log_name.rpartition("-")[0]
    return bool(name) and any(found.startswith(f"{name}-") for found in folder.names("workers"))


def _size(path: Path) -> int:
    return disk_bytes(path) if path.is_dir() and not path.is_symlink() else path.lstat().st_blocks * 512


def _holders(folder: Folder) -> list[Holder]:
    """The live processes behind the locks of servers and owners."""
    locks = [(path, _first_number(folder, path)) for path in _SERVER_LOCKS]
    owners = [name for name in folder.names("owners") if name.endswith(".lock")]
    locks += [(f"owners/{name}", Path(name).stem.partition(".")[2].partition("-")[0]) for name in owners]
    found: dict[int, Holder] = {}
    for lock, number in locks:
        if number.isdigit() and int(number) != os.getpid() and _holds(folder, int(number), lock):
            found.setdefault(int(number), Holder(pid=int(number), lock=lock, command_line=_command_line(int(number))))
    return list(found.values())


def _first_number(folder: Folder, path: str) -> str:
    try:
        return folder.read(path, _MAX_NUMBER).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _holds(folder: Folder, pid: int, lock: str) -> bool:
    """Whether the lock is held and process ``pid``, of the folder's owner, has the lock file open.

    The pid alone is not enough: it may have been reused.
    """
    try:
        descriptor = folder.open_file(lock)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        locked_file = os.fstat(descriptor)
        with contextlib.suppress(OSError):
            if user_of(pid) != os.fstat(folder.descriptor).st_uid:
                return False
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.path.samestat(entry.stat(), locked_file):
                        return True
    finally:
        os.close(descriptor)
    return False


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().strip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


def _end(folder: Folder, holder: Holder, seconds: float) -> None:
    """TERM, and after a while KILL, to the process that holds the lock."""
    try:
        process = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return
    try:
        if not _holds(folder, holder.pid, holder.lock):  # it has exited, and the pidfd may be another process's
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
            if select.select([process], [], [], seconds)[0]:
                return
    finally:
        os.close(process)


@contextmanager
def _server_locks_held(folder: Folder, root: Path) -> Iterator[None]:
    """Hold the server locks during the block, so that no server starts."""
    with contextlib.ExitStack() as stack:
        for lock in _SERVER_LOCKS:
            try:
                descriptor = folder.open_file(lock, os.O_RDWR)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except FileNotFoundError:
                continue
            except BlockingIOError as error:
                raise DebugServerError(f"a server was started in {root} meanwhile: purge again") from error
            except OSError as error:
                raise DebugServerError(
                    f"{root / lock} cannot be locked ({error.strerror}), nothing was removed: remove that file first"
                ) from error
        yield


def _end_builds(folder: Folder) -> None:
    """End the build tools of environments that a killed process left running."""
    for name in folder.names(_BUILD_LOCKS):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            text = folder.read(f"{_BUILD_LOCKS}/{name}", _MAX_BUILD_LOCK)
            if isinstance(target := json.loads(text or b"{}").get("target"), str):
                kill_build(target)
