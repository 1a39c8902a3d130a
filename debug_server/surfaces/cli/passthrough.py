"""Passes a command's output to our stdout and stderr, and our stdin to the command."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import stat
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from debug_server.errors import KeeperError
from debug_server.model import LogChunk
from debug_server.surfaces.cli.standard_streams import write_bytes

_PIECE = 1 << 16
_KEPT_BYTES = 1 << 16  # longer than any reason


class CommandInput(Protocol):
    """The stdin and the terminal of a running command; KeeperError if it has ended."""

    def write(self, data: bytes) -> None:
        """Write data; returns when the command's pipe has accepted all of it."""

    def close(self) -> None:
        """Close stdin."""

    def resize(self, size: Mapping[str, int]) -> None:
        """Set the size of the terminal: ``rows`` and ``cols``."""


class Printer:
    """A log observer that repeats each byte on the stream it came from, or passes chunks on to ``lines``.

    If a stream cannot be written any more, as after `| head -1`, it calls ``on_broken``, which cancels the command.
    """

    def __init__(
        self,
        *,
        system: bool = False,
        on_broken: Callable[[], None] = lambda: None,
        lines: Callable[[LogChunk], None] | None = None,
    ) -> None:
        self._targets = {"stdout": 1, "stderr": 2} | ({"system": 2} if system else {})
        self._on_broken = on_broken
        self._lines = lines
        self._system = b""  # the last bytes of the system stream
        self.broken: OSError | None = None

    def has_printed(self, text: str) -> bool:
        """Whether the last bytes of the system stream contain ``text``."""
        return text.encode() in self._system

    def __call__(self, chunk: LogChunk) -> None:
        """One chunk."""
        target = self._targets.get(chunk.stream)
        if target is None or self.broken is not None:
            return
        try:
            if self._lines is not None:
                self._lines(chunk)
            else:
                write_bytes(target, chunk.data)
        except OSError as error:
            self.broken = error
            self._on_broken()
            return
        if chunk.stream == "system":
            self._system = (self._system + chunk.data)[-_KEPT_BYTES:]


def terminal_size() -> dict[str, int]:
    """The size of our terminal."""
    size = shutil.get_terminal_size()
    return {"rows": size.lines, "cols": size.columns}


def stdin_may_have_input() -> bool:
    """Whether stdin may have input: it is a pipe or a file, not a terminal and not /dev/null."""
    try:
        found = os.fstat(0)
    except OSError:
        return False
    return not os.isatty(0) and found.st_rdev != Path(os.devnull).stat().st_rdev


def has_unread_stdin() -> bool:
    """Whether a pipe or a file at stdin has bytes that nobody has read."""
    if not stdin_may_have_input():
        return False
    if stat.S_ISREG(os.fstat(0).st_mode):
        return os.lseek(0, 0, os.SEEK_CUR) < os.fstat(0).st_size
    unread = bytearray(4)
    try:
        fcntl.ioctl(0, termios.FIONREAD, unread)
    except OSError:
        return False
    return any(unread)


@contextlib.contextmanager
def forwarded_stdin(connect: Callable[[], CommandInput | None], *, tty_mode: bool) -> Iterator[None]:
    """Forward our stdin to a command during the block; with ``tty_mode``, from a raw terminal, with its resizes."""
    stop_read, stop_write = os.pipe()
    feeder = _Feeder(connect, stop_read)
    with _raw_terminal() if tty_mode and os.isatty(0) else contextlib.nullcontext():
        previous: Any = signal.signal(signal.SIGWINCH, feeder.resize) if tty_mode else None
        thread = threading.Thread(target=feeder.run, name="stdin", daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.write(stop_write, b"x")
            thread.join(1.0)
            if tty_mode:
                signal.signal(signal.SIGWINCH, previous)
            os.close(stop_read)
            os.close(stop_write)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


class _Feeder:
    def __init__(self, connect: Callable[[], CommandInput | None], stop: int) -> None:
        self._connect, self._stop = connect, stop
        self._input: CommandInput | None = None

    def run(self) -> None:
        """Wait for the command to start, then feed it until our stdin or the command ends."""
        with contextlib.suppress(KeeperError):  # the command has ended
            while self._input is None:
                if select.select([self._stop], [], [], 0.01)[0]:
                    return
                self._input = self._connect()
            self._feed(self._input)

    def resize(self, _: int, __: FrameType | None) -> None:
        """Pass our window's size on."""
        if self._input is not None:
            with contextlib.suppress(KeeperError):
                self._input.resize(terminal_size())

    def _feed(self, to: CommandInput) -> None:
        while True:
            ready, _, _ = select.select([0, self._stop], [], [])
            if self._stop in ready:
                return
            data = os.read(0, _PIECE)
            if not data:
                to.close()
                return
            to.write(data)
