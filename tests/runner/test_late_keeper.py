"""A keeper that was stopped for a while: what happened meanwhile counts as if it had looked in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from debug_server.model import ExitReason, Limits
from debug_server.runner.keeper.linux import stat_fields
from debug_server.runner.keeper.tree import children
from tests.running import Bench, Started, carrying, eventually, new_mark, python

PATIENCE = 8.0  # of the keepers


@contextmanager
def _stopped(bench: Bench, *commands: Started) -> Iterator[None]:
    """Their keepers see nothing until the end of it; the watchdog of the bench is dismissed."""
    keepers = [_keeper(bench, command) for command in commands]
    for keeper in keepers:
        os.kill(keeper, signal.SIGSTOP)
    try:
        yield
    finally:
        for keeper in keepers:
            os.kill(keeper, signal.SIGCONT)


def _keeper(bench: Bench, started: Started) -> int:
    """As the row has it, also of a command that has ended."""
    handle = bench.store.commands.handle(started.command.id)
    assert handle is not None
    return int(handle["keeper"]["pid"])


def test_what_came_in_time_counts_although_it_is_heard_late(make_bench: Callable[..., Bench]) -> None:
    """A command has ended, one has written and a worker was attached to before their limits: when their keepers go on
    after those, nobody is ended for them."""
    patience = PATIENCE
    while not _is_heard_late(make_bench(), patience):
        patience *= 2


def _is_heard_late(bench: Bench, patience: float) -> bool:
    """False if the machine was so slow that the keepers were not stopped in time, which proves nothing."""
    bench.dismiss_watchdog()
    mark = new_mark("ends")
    began = time.monotonic()
    ends = bench.start(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done", mark], timeout=patience)
    writes = bench.start(
        ["sh", "-c", "while [ ! -e over ]; do echo on; sleep 0.05; done"], limits=Limits(idle_seconds=patience)
    )
    relays = bench.start(python("import sys; sys.stdin.read()"), stdin=True, relay=True, orphan_seconds=patience)
    with _stopped(bench, ends, writes, relays):
        if time.monotonic() - began > patience:
            return False
        (bench.workspace / "go").touch()
        eventually(lambda: not carrying(mark), what="the end of the first")
        client = relays.connect()
        client.send({"op": "attach", "offset": 0})
        time.sleep(patience)
    assert ends.result().exit_reason is ExitReason.EXITED
    assert client.request({"op": "status"})["ending"] is False
    client.send({"op": "close_stdin"})
    assert relays.result().exit_reason is ExitReason.EXITED
    client.close()
    (bench.workspace / "over").touch()
    assert writes.result().exit_reason is ExitReason.EXITED
    return True


def test_the_last_words_of_a_tree_are_kept_although_they_are_read_late(make_bench: Callable[..., Bench]) -> None:
    """What a leftover has written before its end is in the log, however long the keeper did not look at its pipe."""
    bench = make_bench(kill_grace=60.0)
    bench.dismiss_watchdog()
    mark = new_mark("stays")
    stays = "(trap '' TERM; touch deaf; while [ ! -e go ]; do sleep 0.02; done; echo last words) &"
    stays += " while [ ! -e deaf ]; do sleep 0.02; done; exit 0"
    started = bench.start(["sh", "-c", stays, mark])
    keeper = _keeper(bench, started)
    eventually((bench.workspace / "deaf").exists, what="a leftover to be")
    eventually(lambda: len(carrying(mark)) == 1 and not _unreaped(keeper), what="an ended leader, noticed")
    with _stopped(bench, started):
        (bench.workspace / "go").touch()
        eventually(lambda: not carrying(mark), what="the end of the leftover")
        time.sleep(1.5)  # longer than a keeper waits for a pipe that somebody outside its tree holds
    result = started.result()
    assert result.exit_reason is ExitReason.EXITED
    assert bench.log(result)["stdout"] == b"last words\n"


def test_a_cancel_does_not_relabel_what_had_ended(held: Bench) -> None:
    """The command has exited, its keeper has yet to notice, and then somebody cancels it: it has exited."""
    held.dismiss_watchdog()
    mark = new_mark("exits")
    started = held.start(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done", mark])
    eventually(lambda: carrying(mark), what="the program, which a preforked child becomes after `started`")
    below = children(_keeper(held, started))
    with _stopped(held, started):
        (held.workspace / "go").touch()
        eventually(lambda: not carrying(mark), what="its end")
        eventually(lambda: all(map(_has_told, below)), what="what the keeper is told of it")
        held.supervisor.pipeline.cancel(started.command.id)
    assert started.result().exit_reason is ExitReason.EXITED


def _has_told(child: int) -> bool:
    """Whether a child of the keeper can be waited for, or is a namespace's init that has reaped, told, and rests."""
    state = (stat_fields(child) or "Z")[0]
    return state in "ZX" or (state == "S" and not children(child))


def _unreaped(parent: int) -> bool:
    """Whether a child of that process has ended and was not waited for."""
    return any((stat_fields(pid) or "Z")[0] in "ZX" for pid in children(parent))
