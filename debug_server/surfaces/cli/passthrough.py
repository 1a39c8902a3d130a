"""A command's streams on our own: its bytes to our stdout and stderr, our stdin to it."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from debug_server.errors import KeeperError
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.log_chunk import LogChunk
from debug_server.runner.run_dirs import run_dir_for
from debug_server.runner.settings import RunnerPaths
from debug_server.store import MetadataStore

_PIECE = 1 << 16
FOR_EVER = 365 * 86400.0  # the child reads when it likes, and so does whoever reads us


_SAID_BYTES = 1 << 16  # longer than any reason


class Printer:
    """A log observer that repeats each byte on the stream it came from.

    Where that cannot be written any more, as after `| head -1`, nobody wants the command: it is ended.
    """

    def __init__(self, *, system: bool = False, on_broken: Callable[[], None] = lambda: None) -> None:
        self._targets = {"stdout": 1, "stderr": 2} | ({"system": 2} if system else {})
        self._on_broken = on_broken
        self._system = b""  # the end of what was said there
        self.broken: OSError | None = None

    def has_said(self, text: str) -> bool:
        """Whether that is among the last that was written of the system stream."""
        return text.encode() in self._system

    def __call__(self, chunk: LogChunk) -> None:
        """One chunk."""
        target = self._targets.get(chunk.stream)
        if target is None or self.broken is not None:
            return
        view = memoryview(chunk.data)
        try:
            while view:
                view = view[os.write(target, view) :]
        except OSError as error:
            self.broken = error
            self._on_broken()
            return
        if chunk.stream == "system":
            self._system = (self._system + chunk.data)[-_SAID_BYTES:]


def terminal_size() -> dict[str, int]:
    """Of our terminal."""
    size = shutil.get_terminal_size()
    return {"rows": size.lines, "cols": size.columns}


def wants_stdin() -> bool:
    """Whether somebody may have something to say: a pipe or a file, not a terminal and not /dev/null."""
    try:
        found = os.fstat(0)
    except OSError:
        return False
    return not os.isatty(0) and found.st_rdev != Path(os.devnull).stat().st_rdev


@contextlib.contextmanager
def forwarded_stdin(store: MetadataStore, paths: RunnerPaths, session_id: int, *, tty_mode: bool) -> Iterator[None]:
    """Feed our stdin to the session's first command while the block runs; raw and resizing on a terminal."""
    stop_read, stop_write = os.pipe()
    feeder = _Feeder(store, paths, session_id, stop_read)
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
    def __init__(self, store: MetadataStore, paths: RunnerPaths, session_id: int, stop: int) -> None:
        self._store, self._paths, self._session_id, self._stop = store, paths, session_id, stop
        self._connection: KeeperConnection | None = None

    def run(self) -> None:
        """Wait for the command to start, then feed it until our stdin or the command ends."""
        with contextlib.suppress(KeeperError):  # the command has ended: nobody reads any more
            self._connection = self._connect()
            if self._connection is not None:
                self._feed(self._connection)

    def resize(self, _: int, __: FrameType | None) -> None:
        """Pass our window's size on."""
        if self._connection is not None:
            with contextlib.suppress(KeeperError):
                self._connection.send({"op": "resize", **terminal_size()})

    def _connect(self) -> KeeperConnection | None:
        while not select.select([self._stop], [], [], 0.01)[0]:
            for command in self._store.commands.in_session(self._session_id):
                if command.status == "running":
                    run_dir = run_dir_for(self._paths.keepers_dir, command.id, command.attempt)
                    with contextlib.suppress(KeeperError):
                        return KeeperConnection.connect(run_dir)
        return None

    def _feed(self, connection: KeeperConnection) -> None:
        number = 0
        while True:
            ready, _, _ = select.select([0, self._stop], [], [])
            if self._stop in ready:
                return
            data = os.read(0, _PIECE)
            if not data:
                connection.request({"op": "close_stdin"})
                return
            number += 1
            connection.write_stdin(str(number), data, timeout=FOR_EVER)
