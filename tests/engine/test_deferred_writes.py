"""A store that is away when commands start and end: nothing of them is lost, and nothing waits for a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from debug_server.engine import LocalEngine
from debug_server.engine.orphaned_claims import OrphanedClaims
from debug_server.model import ArtifactKind, Command, CommandStatus, ExitReason, QueuedRun, SessionPlan, SessionStatus
from debug_server.runner.run_dirs import run_dir_for
from debug_server.runner.spec import CommandSpec
from tests.engine.engines import await_running, running_engine
from tests.running import Bench, eventually
from tests.store.away import away

MakeBench = Callable[..., Bench]
BUSY = 1.0  # seconds that a writer waits for a locked database
LONG = 5.0  # more than the commit of another thread takes
WAITING = "echo begun; until [ -e go ]; do sleep 0.02; done; echo result > out.txt; exit 3"


def _queue(engine: LocalEngine, bench: Bench, text: str) -> Command:
    """A command in a session of its own, which is closed at its end, with a file to keep."""
    run = QueuedRun(
        spec=CommandSpec(["sh", "-c", text]),
        session_plan=SessionPlan(directory=str(bench.workspace)),
        artifacts=["out.txt"],
    )
    return engine.queue_run(run)


def _exit_record(bench: Bench, command: Command) -> Path:
    return run_dir_for(bench.settings.paths.keepers_dir, command.id, 1) / "exit.json"


def _await_no_record(bench: Bench, command: Command) -> None:
    eventually(lambda: not _exit_record(bench, command).exists(), what="the removal of the run directory")


def _kinds(bench: Bench, command: Command) -> list[str]:
    return [event.kind for event in bench.store.events.read(0, 1000) if event.command_id == command.id]


def test_ends_are_recorded_when_the_store_is_back(database_url: str, make_bench: MakeBench) -> None:
    """Commands end while the store is away: their places are free at once; when it is back each has its end, once,
    with its files, and its session is closed."""
    bench = make_bench(database_url=database_url, busy_seconds=LONG)
    with running_engine(bench) as engine:
        commands = [_queue(engine, bench, WAITING) for _ in range(3)]
        await_running(bench, commands)
        with away(database_url):
            (bench.workspace / "go").touch()
            eventually(lambda: len(bench.supervisor.pipeline.unrecorded) == 3, what="three ends that are kept")
            assert all(_exit_record(bench, command).exists() for command in commands)
            eventually(lambda: not engine._active, what="free places")
        ended = [engine.wait(command.id, 100.0) for command in commands]
        for command in ended:
            assert (command.status, command.exit_code) == (CommandStatus.FAILED, 3)
            assert bench.log(command)["stdout"] == b"begun\n"
            kinds = {item.kind for item in bench.store.artifacts.in_session(command.session_id)}
            assert kinds == {ArtifactKind.LOG, ArtifactKind.CUSTOM}
            assert bench.store.sessions.get(command.session_id).status is SessionStatus.FAILED
            assert _kinds(bench, command).count("command.finished") == 1
            _await_no_record(bench, command)
        assert not bench.supervisor.pipeline.unrecorded


def test_ends_of_a_server_that_left_meanwhile(make_bench: MakeBench) -> None:
    """The store comes back after the server has gone: the next one records the end."""
    bench = make_bench(busy_seconds=BUSY)
    with running_engine(bench) as engine:
        command = _queue(engine, bench, WAITING)
        await_running(bench, [command])
        with away(bench.database_url):
            (bench.workspace / "go").touch()
            eventually(lambda: bench.supervisor.pipeline.unrecorded, what="an end that is kept")
            engine.stop()
            writer = engine._deferred._thread
            assert writer is not None
            writer.join(100.0)  # it may be waiting for the database, and would have it first
            bench.supervisor.close()
    bench.supervisor = bench.new_supervisor()
    with running_engine(bench) as engine:
        ended = engine.wait(command.id, 100.0)
    assert (ended.status, ended.exit_code) == (CommandStatus.FAILED, 3)
    assert bench.store.sessions.get(command.session_id).status is SessionStatus.FAILED
    names = {item.name for item in bench.store.artifacts.in_session(command.session_id, kind=ArtifactKind.CUSTOM)}
    assert names == {"out.txt"}


def test_a_refusal_is_recorded_when_the_store_is_back(make_bench: MakeBench) -> None:
    """A command that cannot be prepared while the store is away is told so later; its session is closed."""
    bench = make_bench(busy_seconds=BUSY)
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    run = QueuedRun(spec=CommandSpec(["true"]), session_plan=SessionPlan(directory=str(bench.root / "gone")))
    command = engine.queue_run(run)
    claimed = bench.store.queue.claim_next(engine.owner)
    assert claimed is not None
    with away(bench.database_url):
        engine._work(engine._run, claimed, claimed.id)
        assert bench.supervisor.pipeline.unrecorded == [command.id]
    engine.start()
    ended = engine.wait(command.id, 100.0)
    engine.stop()
    assert ended.exit_reason is ExitReason.SPAWN_FAILED
    assert bench.store.sessions.get(command.session_id).status is SessionStatus.FAILED


def test_a_claim_is_forgotten_only_if_it_stays_so(bench: Bench) -> None:
    """A command that was claimed anew since the last look may not be known to its engine yet: it is left alone."""
    orphaned = OrphanedClaims(store=bench.store, supervisor=bench.supervisor)
    command, owner = bench.store.commands.add(session_id=bench.session.id, argv=["true"]), bench.supervisor.owner
    for attempt in (1, 2):
        assert bench.store.queue.claim_next(owner) is not None
        assert orphaned.find(busy=set()) == set()
        if attempt == 1:
            bench.store.queue.requeue(command.id, attempt=1, owner=owner)
    assert orphaned.find(busy={command.id}) == set()
    assert orphaned.find(busy=set()) == set()
    assert orphaned.find(busy=set()) == {(command.id, 2)}


def test_what_this_process_claimed_and_forgot_is_begun_anew(bench: Bench) -> None:
    """A claim whose answer was lost leaves a command that nobody works on: it goes back to the queue and runs."""
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    command = engine.submit(session_id=bench.session.id, spec=CommandSpec(["sh", "-c", "echo once >> order"]))
    assert bench.store.queue.claim_next(engine.owner) is not None
    engine.start()
    for _ in range(2):
        engine._recover_periodically()
    ended = engine.wait(command.id, 100.0)
    engine.stop()
    assert (ended.status, ended.attempt) == (CommandStatus.SUCCEEDED, 2)
    assert (bench.workspace / "order").read_text() == "once\n"
