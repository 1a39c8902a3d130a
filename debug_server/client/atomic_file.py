"""Replaces a file atomically."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from debug_server.errors import InvalidInputError


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A temporary file beside ``target`` that replaces it if the block succeeds."""
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise InvalidInputError(f"{str(target)!r} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        Path(draft).chmod(0o666 & ~mask)  # the mode of a newly created file
        Path(draft).replace(target)
    finally:
        Path(draft).unlink(missing_ok=True)
