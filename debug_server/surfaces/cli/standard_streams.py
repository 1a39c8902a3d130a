"""Our own stdin, stdout and stderr, which may be closed, full, or unable to show every character."""

from __future__ import annotations

import contextlib
import io
import os
import sys

_FAILED = 1
_STDOUT = "stdout"  # as the file name of an error


def ensure_standard_streams() -> None:
    """Reopen standard streams that the caller has closed, before another file gets their descriptors.

    A closed stdin then reads as empty, a closed stderr discards output, and writes to a closed stdout fail.
    """
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number, which is this one
            os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = sys.stdout or _writer(1)
    sys.stderr = sys.stderr or _writer(2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # in an ASCII locale


def _writer(descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="replace", line_buffering=True)


def write_bytes(descriptor: int, data: bytes) -> None:
    """Write all of it, past Python's buffers."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_stdout(text: str) -> None:
    """Write text to stdout and flush; an OSError has ``stdout`` as its file name."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        raise OSError(error.errno, error.strerror, _STDOUT) from error


def report_os_error(error: OSError) -> int:
    """One line on stderr for an error of the system that nothing else has explained; returns the exit status."""
    what = "cannot write to stdout: " if _discard_unwritable_output() or error.filename == _STDOUT else ""
    if not what and error.filename is not None:
        what = f"{os.fsdecode(error.filename)}: "
    reason = error.strerror or str(error)
    if not what and isinstance(error, FileNotFoundError):  # raised by getcwd, without a file name
        reason = "the current folder no longer exists: change to another one"
    write_stderr(f"debug-server: {what}{reason}")
    return _FAILED


def _discard_unwritable_output() -> bool:
    """Whether stdout has buffered output that cannot be written; that output is discarded.

    Otherwise Python would retry at exit, print its own message and change the exit status.
    """
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        return True
    return False


def write_stderr(line: str, *, end: str = "\n") -> None:
    """Write a line to stderr; if that fails, only the exit status reports the error."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{line}{end}")
        sys.stderr.flush()
