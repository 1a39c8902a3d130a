"""Writes a downloaded file, whole or not at all, also in a folder where others may put links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from debug_server.disk import write_draft
from debug_server.errors import InvalidInputError


@contextmanager
def writing(target: Path, *, replace: bool) -> Iterator[IO[bytes]]:
    """A file that becomes ``target`` if the block succeeds.

    With ``replace`` an existing file or link is replaced; without it, an existing one raises InvalidInputError.
    """
    try:
        folder = os.open(target.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with write_draft(folder, target.name, replace=replace) as file:
                yield file
        finally:
            os.close(folder)
    except FileExistsError as error:
        raise InvalidInputError(f"{str(target)!r} exists already and is not replaced") from error
    except OSError as error:
        raise InvalidInputError(f"{str(target)!r} cannot be written: {error.strerror or error}") from error
