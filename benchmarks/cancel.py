"""Cancelling a tree of 200 processes that ignore TERM, sessions of their own and double forks among them."""

from __future__ import annotations

import sys
import threading

from benchmarks.command_setup import CommandSetup, TextObserver, open_command_setup
from benchmarks.figures import Figure, Result, Samples, Size, at_most, milliseconds
from debug_server.runner.spec import CommandSpec

_ROUNDS = {Size.FULL: 20, Size.QUICK: 4, Size.SMALLEST: 1}
_PROCESSES = {Size.FULL: 200, Size.QUICK: 200, Size.SMALLEST: 6}
_GROWN_SECONDS = 60.0

_TREE = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
read, write = os.pipe()

def stay():
    os.write(write, b".")
    while True:
        signal.pause()

for number in range(int(sys.argv[1]) - 1):
    if os.fork():
        continue
    if number % 3:
        os.setsid()
    if number % 3 == 2 and os.fork():
        os._exit(0)
    stay()
left = int(sys.argv[1]) - 1
while left:
    left -= len(os.read(read, left))
os.write(1, b"grown\\n")
stay()
"""


def measure(size: Size) -> list[Result]:
    """How long after the KILL the tree is empty, by the exit record's evidence."""
    with open_command_setup(kill_grace=0.05) as setup:
        _cancel(setup, _PROCESSES[size])
        ladders = [_cancel(setup, _PROCESSES[size]) for _ in range(_ROUNDS[size])]
    after = Samples.of([ladder["seconds_after_kill"] for ladder in ladders])
    whole = Samples.of([ladder["seconds"] for ladder in ladders])
    facts = {"processes": _PROCESSES[size]} | after.facts("after_kill") | whole.facts("from_cancel")
    return [
        Figure(name="empty_after_kill_p50", value=milliseconds(after.p50), unit="ms", bar=at_most(100), facts=facts),
        Figure(name="empty_after_kill_max", value=milliseconds(max(after.values)), unit="ms", bar=at_most(100)),
    ]


def _cancel(setup: CommandSetup, processes: int) -> dict[str, float]:
    grown = TextObserver("grown")
    # Zombies of double forks are reaped by the keeper; the program itself never waits.
    spec = CommandSpec([sys.executable, "-S", "-c", _TREE, str(processes)])
    canceller = threading.Thread(target=_cancel_when, args=(setup, grown))
    canceller.start()
    result = setup.run(spec, observers=[grown])
    canceller.join()
    found: dict[str, float] = result.exit.evidence["ladder"]
    return found


def _cancel_when(setup: CommandSetup, grown: TextObserver) -> None:
    grown.wait(_GROWN_SECONDS)
    setup.supervisor.pipeline.cancel_all()
