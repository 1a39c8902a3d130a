"""Owners of commands: each live process holds a lock on a file, so that a dead one is recognised at once.

The lock ends with the process, so no heartbeat and no timeout is needed on one machine. An owner's name begins with the
identity of its folder: a process with the same store but another folder cannot check it, and ignores it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from debug_server.errors import ConfigurationError, DiskFullError


class Owner:
    """The owner file of this process; ``name`` is in the rows that it has claimed."""

    def __init__(self, owners_dir: Path) -> None:
        # Lock it under a hidden name first, so that a visible file is always locked.
        hidden = _hidden(owners_dir)
        try:
            self.name = f"{folder_identity(owners_dir)}{hidden.name}"
            self._fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise (
                DiskFullError.of(error, f"{error.filename} cannot be written")
                or ConfigurationError(
                    f"{error.filename} cannot be written ({error.strerror}): make it writable, or set paths.artifacts"
                )
            ) from error
        self._path = owner_file(owners_dir, self.name)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        hidden.rename(self._path)

    def close(self) -> None:
        """Remove the owner file: this process no longer owns commands."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def owner_file(owners_dir: Path, name: str) -> Path:
    """The file that exists while that owner is alive.

    Recovery removes the file of a dead owner before it changes anything else of that owner.
    """
    return owners_dir.absolute() / f"{name}.lock"


def _hidden(owners_dir: Path) -> Path:
    """A new hidden name with our pid, for a file that is not complete yet."""
    return owners_dir / f".{os.getpid()}-{secrets.token_hex(6)}"


def folder_identity(owners_dir: Path) -> str:
    """A random word that identifies the folder; the first process writes it."""
    owners_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = owners_dir / "identity"
    if not path.exists():
        fresh = _hidden(owners_dir)
        fresh.write_text(secrets.token_hex(6))
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
        fresh.unlink()
    return path.read_text()


def is_ours(owners_dir: Path, name: str) -> bool:
    """Whether that owner's file is in this folder, so that ``is_alive`` can check it."""
    return name.partition(".")[0] == folder_identity(owners_dir)


def is_alive(owners_dir: Path, name: str) -> bool:
    """Whether the process of owner ``name`` still runs; the file of a dead one is removed."""
    path = owner_file(owners_dir, name)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: others may look at the same time
    except BlockingIOError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(fd)


def remove_dead(owners_dir: Path) -> None:
    """Remove the files of dead processes."""
    for path in owners_dir.glob("*.lock"):
        is_alive(owners_dir, path.stem)  # removes the file of a dead process
    for hidden in owners_dir.glob(".*"):
        if not Path(f"/proc/{hidden.name[1:].partition('-')[0]}").exists():
            hidden.unlink(missing_ok=True)
