"""Writes a file in a folder where others may put links: a draft of our own, which then takes the file's name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from debug_server.disk import kernel

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def write_draft(folder: int, name: str, *, replace: bool) -> Iterator[IO[bytes]]:
    """A new file in an open folder that gets ``name`` when the block succeeds, and is removed when it fails.

    With ``replace`` it takes the place of a file or a link of that name; without, FileExistsError. Whatever others put
    at the names meanwhile: only the file that was made here is written to, and only the open folder changes.
    """
    draft = f".debug-server-{secrets.token_hex(8)}"
    # Its final mode from the start: it need not be changed by name later.
    descriptor = os.open(draft, _NEW, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if replace:
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            kernel.rename_new(folder, draft, name)
    finally:
        with suppress(OSError):  # it has its name, or others took it away
            os.unlink(draft, dir_fd=folder)
