"""Who runs which command: a locked file names each live process, so that a dead one is recognised at once.

A lock ends with its process however that ends; no heartbeat and no timeout is needed on one machine.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from debug_server.errors import ConfigurationError


class Owner:
    """This process's claim to be alive; ``name`` stands in the rows it has claimed."""

    def __init__(self, owners_dir: Path) -> None:
        self.name = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._path = owners_dir / f"{self.name}.lock"
        # Locked under another name first: a file that can be seen is a file that is locked.
        hidden = owners_dir / f".{self.name}"
        try:
            owners_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"{error.filename} cannot be written ({error.strerror}): make it writable, or set paths.artifacts"
            ) from error
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        hidden.rename(self._path)

    def close(self) -> None:
        """Stop being alive."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def is_alive(owners_dir: Path, name: str) -> bool:
    """Whether the process that called itself ``name`` still runs; the file of a dead one is removed."""
    path = owners_dir / f"{name}.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(fd)


def sweep(owners_dir: Path) -> None:
    """Remove the files of dead processes."""
    for path in owners_dir.glob("*.lock"):
        is_alive(owners_dir, path.stem)
    for hidden in owners_dir.glob(".*"):
        if not Path(f"/proc/{hidden.name[1:].partition('-')[0]}").exists():
            hidden.unlink(missing_ok=True)
