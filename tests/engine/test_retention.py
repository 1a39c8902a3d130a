"""Old history is removed as ``[history]`` says, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debug_server.app import Local
from debug_server.config import HistoryConfig
from debug_server.engine import SessionWorkspace
from debug_server.engine.elapsed import ElapsedTime
from debug_server.engine.retention import Retention
from debug_server.errors import ConflictError, NotFoundError
from debug_server.model import (
    ArtifactKind,
    CommandSpec,
    ExitReason,
    ExitRecord,
    Session,
    SessionPlan,
    SessionStatus,
)
from debug_server.runner.log_format import index_path
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.store import MetadataStore, open_store
from tests.store.conftest import Clock

DAY = 86_400.0
ENDED = ExitRecord(reason=ExitReason.EXITED, exit_code=0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(database_url: str, clock: Clock) -> Iterator[MetadataStore]:
    with open_store(database_url, now=clock) as opened:
        yield opened


@pytest.fixture
def paths(tmp_path: Path) -> RunnerPaths:
    return RunnerPaths.from_root(tmp_path / "artifacts")


@pytest.fixture
def retention(store: MetadataStore, paths: RunnerPaths, clock: Clock) -> Callable[..., Retention]:
    """Makes one with these settings."""
    started = clock.time

    def seconds_passed() -> float:
        return (clock.time - started).total_seconds()

    def make(*, stopped: Callable[[], bool] = lambda: False, **settings: float) -> Retention:
        elapsed = ElapsedTime(wall=clock, ticks=seconds_passed)
        return Retention(
            store=store,
            paths=paths,
            settings=HistoryConfig(**settings),  # type: ignore[arg-type]  # some are whole numbers
            stopped=stopped,
            elapsed=elapsed,
        )

    return make


def add_session(store: MetadataStore, paths: RunnerPaths, commands: int = 1, *, closed: bool = True) -> Session:
    """A session with ended commands, whose logs and artifacts are files."""
    session = store.sessions.create()
    for _ in range(commands):
        add_command(store, paths, session)
    return store.sessions.set_status(session.id, SessionStatus.COMPLETED) if closed else session


def add_command(store: MetadataStore, paths: RunnerPaths, session: Session) -> Path:
    command = store.commands.add(session_id=session.id, argv=["true"], claim_owner="me")
    log = paths.logs_dir / str(session.id) / f"command-{command.id}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    for name in (log, Path(index_path(log))):
        name.write_text("text")
    store.commands.start(command.id, attempt=1, owner="me", handle={}, log_path=str(log))
    store.commands.finish(command.id, attempt=1, owner="me", record=ENDED, log_path=str(log))
    kept = paths.artifacts_root / "collected" / str(session.id) / str(command.id) / "report"
    kept.parent.mkdir(parents=True)
    kept.write_text("text")
    store.artifacts.add(
        session_id=session.id, command_id=command.id, kind=ArtifactKind.CUSTOM, name="report", path=str(kept)
    )
    return log


def is_whole(store: MetadataStore, paths: RunnerPaths, session: Session) -> bool:
    """Whether everything of a session is there; fails if only a part is."""
    try:
        store.sessions.get(session.id)
    except NotFoundError:
        assert not store.commands.in_session(session.id) and not store.artifacts.in_session(session.id)
        assert not (paths.logs_dir / str(session.id)).exists()
        assert not (paths.artifacts_root / "collected" / str(session.id)).exists()
        return False
    for command in store.commands.in_session(session.id):
        assert command.log_path is not None and Path(command.log_path).exists()
        assert all(Path(item.path).exists() for item in store.artifacts.in_session(session.id, command_id=command.id))
    assert store.events.read(session_id=session.id)
    return True


def test_by_default_everything_is_kept(
    store: MetadataStore, paths: RunnerPaths, clock: Clock, retention: Callable[..., Retention]
) -> None:
    """However old it is."""
    sessions = [add_session(store, paths) for _ in range(3)]
    clock.move(10_000 * DAY)
    assert retention().remove_old() == 0
    assert all(is_whole(store, paths, session) for session in sessions)


def test_what_was_closed_too_long_ago_is_removed_with_its_files(
    store: MetadataStore, paths: RunnerPaths, clock: Clock, retention: Callable[..., Retention]
) -> None:
    """Counted from when a session was closed; an open one stays, however old it is, and so does what is younger."""
    opened = add_session(store, paths, 2, closed=False)
    late = add_session(store, paths, closed=False)
    old = [add_session(store, paths, 2), add_session(store, paths, 0)]
    old_events = [event.seq for session in old for event in store.events.read(session_id=session.id)]
    clock.move(9 * DAY)
    store.sessions.set_status(late.id, SessionStatus.FAILED)
    young = add_session(store, paths)
    clock.move(2 * DAY)
    assert retention(keep_seconds=10 * DAY).remove_old() == 2
    assert not any(is_whole(store, paths, session) for session in old)
    assert all(is_whole(store, paths, session) for session in (opened, late, young))
    assert not {event.seq for event in store.events.read()} & set(old_events)
    assert retention(keep_seconds=10 * DAY).remove_old() == 0


def test_the_newest_commands_are_kept(
    store: MetadataStore, paths: RunnerPaths, clock: Clock, retention: Callable[..., Retention]
) -> None:
    """A session is removed when the commands that were added after it was closed suffice."""
    sessions = []
    for _ in range(5):
        sessions.append(add_session(store, paths, 2))
        clock.move(1)
    assert retention(keep_commands=10).remove_old() == 0
    assert retention(keep_commands=5).remove_old() == 2
    assert [is_whole(store, paths, session) for session in sessions] == [False, False, True, True, True]


def test_no_number_is_given_twice(
    store: MetadataStore, paths: RunnerPaths, clock: Clock, retention: Callable[..., Retention]
) -> None:
    """The newest session, command, artifact and event stay, even if all are old."""
    artifact = add_session(store, paths)
    without = store.sessions.create()
    command = store.commands.add(session_id=without.id, argv=["true"])
    store.commands.request_cancel(command.id)
    store.sessions.set_status(without.id, SessionStatus.CANCELLED)
    last = add_session(store, paths, 0)
    seq = store.events.last()
    clock.move(10 * DAY)
    assert retention(keep_seconds=DAY).remove_old() == 0
    for session in (artifact, without, last):
        assert store.sessions.get(session.id).id == session.id
    again = store.sessions.create()
    assert again.id > last.id
    assert store.commands.add(session_id=again.id, argv=["true"]).id > command.id
    assert store.events.last() > seq


def test_an_interrupted_removal_is_continued(
    store: MetadataStore, paths: RunnerPaths, clock: Clock, retention: Callable[..., Retention]
) -> None:
    """A server that stops after each page removes all of a long session in the end."""
    session = add_session(store, paths, 450)
    add_session(store, paths)
    clock.move(10 * DAY)
    rounds = 0
    while retention(keep_seconds=DAY, stopped=lambda: True).remove_old() == 0:
        rounds += 1
        assert rounds < 100
        for command in store.commands.in_session(session.id):
            assert command.log_path is not None and Path(command.log_path).exists()
    assert rounds > 3
    assert not is_whole(store, paths, session)


def test_what_is_still_needed_stays(
    store: MetadataStore, paths: RunnerPaths, clock: Clock, retention: Callable[..., Retention]
) -> None:
    """A session with a callback that is not delivered, and a file in its folder that no row names."""
    called, shared = add_session(store, paths), add_session(store, paths)
    add_session(store, paths)
    store.outbox.add("task_callbacks", store.events.last(), [(called.id, {"status": "ended"})])
    strange = paths.logs_dir / str(shared.id) / "command-1.log.17.old"
    strange.write_text("of an earlier store")
    clock.move(10 * DAY)
    assert retention(keep_seconds=DAY).remove_old() == 1
    assert is_whole(store, paths, called)
    assert strange.exists() and len(list(strange.parent.iterdir())) == 1
    with pytest.raises(ConflictError, match="in use"):
        store.history.remove_session(called.id)


def test_a_removed_command_is_not_found(tmp_path: Path) -> None:
    """Real commands: the removed ones leave no file, and those that are kept have their output."""
    settings = RunnerSettings(RunnerPaths.from_root(tmp_path / "artifacts"), history=HistoryConfig(keep_commands=1))
    with Local(settings, str(tmp_path / "store.db")) as local:
        results = []
        for _ in range(3):
            session = local.store.sessions.create(plan=SessionPlan(directory=str(tmp_path)))
            spec = CommandSpec(["echo", "hello"])
            results.append(local.supervisor.run_command(session.id, spec, SessionWorkspace(path=tmp_path)))
            local.store.sessions.set_status(session.id, SessionStatus.COMPLETED)
        stopped = Retention(store=local.store, paths=settings.paths, settings=settings.history, stopped=lambda: False)
        assert stopped.remove_old() == 2
        for result in results[:2]:
            assert not result.log_path.exists() and not result.log_path.parent.exists()
            with pytest.raises(NotFoundError):
                local.store.commands.get(result.command_id)
        assert b"hello\n" in results[2].log_path.read_bytes()
