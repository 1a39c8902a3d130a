"""A file that is there whole or not at all."""

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
    """A draft beside ``target`` that takes its place when the block ends well."""
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise InvalidInputError(f"{str(target)!r} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        Path(draft).chmod(0o666 & ~mask)  # as a file that was simply opened would be
        Path(draft).replace(target)
    finally:
        Path(draft).unlink(missing_ok=True)
