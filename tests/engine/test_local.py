"""The queue's engine: order, bounds, cancel in every state, and several engines on one store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from debug_server.engine import LocalEngine, Sessions
from debug_server.errors import KeeperError, QueueFullError
from debug_server.model import Command, CommandStatus, ExitReason, SessionPlan
from debug_server.runner.settings import RunnerPaths
from debug_server.runner.spec import CommandSpec
from debug_server.store import open_store
from tests.engine.engines import await_running, running_engine
from tests.running import Bench, eventually

MakeBench = Callable[..., Bench]
# Notes how many there are with it, waits for the file ``go`` and stays a moment longer, so that too many would show.
COUNTING = (
    "mkdir -p held; touch held/$$; ls held | wc -l >> order; "
    "until [ -e go ]; do sleep 0.02; done; sleep 0.1; rm held/$$"
)


def _submit(engine: LocalEngine, bench: Bench, text: str, **options: object) -> Command:
    spec = CommandSpec(["sh", "-c", text])
    return engine.submit(session_id=bench.session.id, spec=spec, **options)  # type: ignore[arg-type]


def _await(engine: LocalEngine, *commands: Command) -> list[Command]:
    ended = [engine.wait(command.id, 100.0) for command in commands]
    assert all(command.status.terminal for command in ended)
    return ended


def _lines(bench: Bench) -> list[str]:
    path = bench.workspace / "order"
    return path.read_text().split() if path.exists() else []


def test_one_key_is_worked_off_in_order(bench: Bench) -> None:
    """Commands of one session run one after another, as they were submitted."""
    with running_engine(bench) as engine:
        commands = [_submit(engine, bench, f"echo begin{n} >> order; echo end{n} >> order") for n in range(6)]
        _await(engine, *commands)
    assert _lines(bench) == [f"{what}{n}" for n in range(6) for what in ("begin", "end")]


def test_a_key_may_have_several_at_once_and_never_more(make_bench: MakeBench) -> None:
    """key_limit bounds how many of one key run at the same time; other keys are not held up."""
    bench = make_bench(max_concurrency=6)
    with running_engine(bench) as engine:
        commands = [_submit(engine, bench, COUNTING, queue_key="tight", key_limit=2) for _ in range(6)]
        other = _submit(engine, bench, "sleep 0.1; touch other", queue_key="free")
        (ended,) = _await(engine, other)
        assert not any(engine.wait(command.id, 0).status.terminal for command in commands)
        eventually(lambda: len(_lines(bench)) == 2, what="two of one key at once")
        (bench.workspace / "go").touch()
        _await(engine, *commands)
    assert max(map(int, _lines(bench))) == 2
    assert ended.status is CommandStatus.SUCCEEDED


def test_priority_goes_first(make_bench: MakeBench) -> None:
    """Of what waits, the highest priority is next; equals keep their order."""
    bench = make_bench(max_concurrency=1)
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    wanted = [("low", -5), ("first", 0), ("urgent", 9), ("second", 0)]
    commands = [
        _submit(engine, bench, f"echo {name} >> order", priority=priority, queue_key=name) for name, priority in wanted
    ]
    engine.start()
    _await(engine, *commands)
    engine.stop()
    assert _lines(bench) == ["urgent", "first", "second", "low"]


def test_the_queue_is_bounded(make_bench: MakeBench) -> None:
    """One more than may wait is refused, and nothing of it is recorded."""
    bench = make_bench(max_pending=3)
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    waiting = [_submit(engine, bench, "true") for _ in range(3)]
    with pytest.raises(QueueFullError, match="3"):
        _submit(engine, bench, "true")
    assert len(bench.store.commands.in_session(bench.session.id)) == 3
    engine.start()
    _await(engine, *waiting)
    engine.stop()


def test_concurrency_is_bounded(make_bench: MakeBench) -> None:
    """max_concurrency commands at once, whatever their keys."""
    bench = make_bench(max_concurrency=2)
    with running_engine(bench) as engine:
        commands = [_submit(engine, bench, COUNTING, queue_key=f"k{n}") for n in range(6)]
        eventually(lambda: len(_lines(bench)) == 2, what="two at once")
        (bench.workspace / "go").touch()
        _await(engine, *commands)
    assert max(map(int, _lines(bench))) == 2


def test_cancel_while_pending(bench: Bench) -> None:
    """It never starts."""
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    command = _submit(engine, bench, "touch ran")
    assert engine.cancel(command.id).status is CommandStatus.CANCELLED
    engine.start()
    _await(engine, _submit(engine, bench, "true"))
    engine.stop()
    assert not (bench.workspace / "ran").exists()
    assert bench.store.commands.get(command.id).exit_reason is ExitReason.CANCELLED


def test_cancel_while_claimed(bench: Bench) -> None:
    """Claimed and not yet started: the mark in its row ends it as soon as it would begin."""
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    command = _submit(engine, bench, "sleep 1000")
    claimed = bench.store.queue.claim_next(bench.supervisor.owner)
    assert claimed is not None and claimed.id == command.id
    assert not engine.cancel(command.id).status.terminal
    engine._run(claimed)
    ended = bench.store.commands.get(command.id)
    assert (ended.status, ended.exit_reason) == (CommandStatus.CANCELLED, ExitReason.CANCELLED)


def test_cancel_while_running_here(bench: Bench) -> None:
    """The tree is ended; what it had written stays; a second cancel changes nothing."""
    with running_engine(bench) as engine:
        command = _submit(engine, bench, "echo before; sleep 1000")
        await_running(bench, [command])
        engine.cancel(command.id, "not needed any more")
        (ended,) = _await(engine, command)
        assert engine.cancel(command.id) == ended
    assert ended.exit_reason is ExitReason.CANCELLED
    assert ended.exit is not None and ended.exit.message == "not needed any more"


def test_cancel_while_running_elsewhere(make_bench: MakeBench, tmp_path: Path) -> None:
    """Another process runs it: the keeper is asked directly."""
    here = make_bench()
    there = make_bench(root=here.root)
    with running_engine(there) as worker:
        command = _submit(worker, there, "sleep 1000")
        await_running(there, [command])
        other = LocalEngine(store=here.store, supervisor=here.supervisor)
        other.cancel(command.id)
        (ended,) = _await(worker, command)
    assert ended.exit_reason is ExitReason.CANCELLED


def test_signals_and_stdin_of_a_running_command(bench: Bench) -> None:
    """Both reach it; a command that has ended is refused by name."""
    with running_engine(bench) as engine:
        spec = CommandSpec(
            ["sh", "-c", "trap 'exit 4' USR1; read line; echo got $line; while :; do sleep 0.02; done"], stdin=True
        )
        command = engine.submit(session_id=bench.session.id, spec=spec)
        await_running(bench, [command])
        with engine.connect(bench.store.commands.get(command.id)) as connection:
            connection.write_stdin("w1", b"hello\n")
        eventually(lambda: b"got hello" in Path(str(bench.store.commands.get(command.id).log_path)).read_bytes())
        engine.signal(command.id, 10)
        (ended,) = _await(engine, command)
        assert ended.exit_code == 4
        with pytest.raises(KeeperError):
            engine.signal(command.id, 10)


def test_stop_lets_go_and_another_engine_adopts(make_bench: MakeBench) -> None:
    """What runs goes on without its engine; the next one takes it over and hears its end."""
    first = make_bench()
    engine = LocalEngine(store=first.store, supervisor=first.supervisor)
    engine.start()
    command = _submit(engine, first, "echo once >> order; while [ ! -e go ]; do sleep 0.02; done; exit 6")
    await_running(first, [command])
    engine.stop()
    assert first.supervisor.pipeline.running == [], "it was let go, not given up on"
    assert first.store.commands.get(command.id).status is CommandStatus.RUNNING
    first.supervisor.close()
    second = make_bench(root=first.root)
    successor = LocalEngine(store=second.store, supervisor=second.supervisor)
    assert successor.start() == [command.id]
    (first.workspace / "go").touch()
    (ended,) = _await(successor, command)
    successor.stop()
    assert (ended.exit_code, ended.attempt, _lines(first)) == (6, 1, ["once"])


def test_stop_waits_for_a_grace(bench: Bench) -> None:
    """What ends within it is finished here."""
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    engine.start()
    command = _submit(engine, bench, "until [ -e go ]; do sleep 0.02; done")
    await_running(bench, [command])
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(engine.stop, grace=1000.0)
        claims = engine._claim_thread
        assert claims is not None
        claims.join(100.0)
        (bench.workspace / "go").touch()
        stopped.result(200.0)
    assert bench.store.commands.get(command.id).status is CommandStatus.SUCCEEDED


def test_two_engines_never_run_a_command_twice(make_bench: MakeBench) -> None:
    """Sixty commands, two engines, one store: each ran once and has one terminal event."""
    first = make_bench(max_concurrency=4)
    second = make_bench(root=first.root, max_concurrency=4)
    with ExitStack() as stack:
        engines = [stack.enter_context(running_engine(bench)) for bench in (first, second)]
        text = "until [ -e go ]; do sleep 0.02; done; echo {} >> order"  # none ends before both engines are full
        commands = [_submit(engines[n % 2], first, text.format(n), queue_key=f"k{n % 12}") for n in range(60)]
        eventually(lambda: len(first.supervisor.pipeline.running + second.supervisor.pipeline.running) == 8)
        (first.workspace / "go").touch()
        ended = _await(engines[0], *commands)
    assert {command.status for command in ended} == {CommandStatus.SUCCEEDED}
    assert sorted(map(int, _lines(first))) == list(range(60))
    finished = [event.command_id for event in first.store.events.read(0, 10_000) if event.kind == "command.finished"]
    assert sorted(filter(None, finished)) == sorted(command.id for command in commands)
    assert len({command.owner for command in ended}) == 2, "both have worked"


def test_a_command_that_cannot_be_prepared_ends(bench: Bench) -> None:
    """Its workspace is gone: the row fails with the reason, and the engine goes on."""
    session = bench.store.sessions.create(plan=SessionPlan(directory=str(bench.root / "gone")))
    with running_engine(bench) as engine:
        command = engine.submit(session_id=session.id, spec=CommandSpec(["true"]))
        (ended,) = _await(engine, command)
        assert (ended.status, ended.exit_reason) == (CommandStatus.FAILED, ExitReason.SPAWN_FAILED)
        assert ended.exit is not None and "gone" in ended.exit.message
        (fine,) = _await(engine, _submit(engine, bench, "true"))
    assert fine.status is CommandStatus.SUCCEEDED


def test_many_who_register_one_remote_get_one_repository(tmp_path: Path) -> None:
    """Eight processes' worth of stores register the same path at once: all get the same row, none an error."""
    remote = tmp_path / "remote"
    remote.mkdir()
    url = f"sqlite:///{tmp_path}/data/metadata.db"
    open_store(url).close()
    begin = threading.Barrier(8)

    def register(_: int) -> int:
        with open_store(url) as store:
            sessions = Sessions(store=store, paths=RunnerPaths.from_root(tmp_path / "artifacts"))
            begin.wait(60)
            return sessions.register(str(remote)).id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(register, range(8)))) == 1
