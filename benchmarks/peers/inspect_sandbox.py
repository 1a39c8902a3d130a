"""Inspect's local sandbox (``inspect-ai`` on PyPI), in a process of its environment that measures itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.contenders import IN_FLIGHT, Contender, writer
from benchmarks.peers.installation import MissingPeerError, environment_of

_PROGRAM = Path(__file__).with_name("inspect_program.py")


class InspectSandbox(Contender):
    """Asks the program for one measurement after the other."""

    name = "inspect"
    most_output = 10 << 20  # its default limit of output; the beginning is dropped

    def __init__(self, program: subprocess.Popen[bytes], version: str) -> None:
        self._program = program
        self.about = f"in process; {version}; nothing is kept; no isolation"

    def _measure(self, **order: object) -> float:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps(order).encode() + b"\n")
        if not (line := self._program.stdout.readline()):
            raise OSError("the program with Inspect's sandbox has ended")
        return float(line)

    def run_one(self) -> float:
        """One call."""
        return self._measure(count=1, in_flight=1, argv=["true"], output=0)

    def run_many(self, count: int) -> float:
        """Calls of one event loop."""
        return self._measure(count=count, in_flight=IN_FLIGHT, argv=["true"], output=0)

    def run_output(self, total: int) -> float:
        """One call that returns text."""
        return self._measure(count=1, in_flight=1, argv=writer(total), output=total)


@contextmanager
def inspect_sandbox(*, install: bool) -> Iterator[InspectSandbox]:
    """A process of its own; MissingPeerError if it cannot be had."""
    environment, version = environment_of("inspect-ai", install=install)
    with subprocess.Popen(
        [str(environment / "bin" / "python"), str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    ) as program:
        contender = InspectSandbox(program, version)
        try:
            try:
                contender.run_one()
            except OSError as error:
                raise MissingPeerError("inspect-ai", "its local sandbox does not run here") from error
            yield contender
        finally:
            program.kill()
